"""What a hostile user of the namespace does, who may edit its pods, claims and templates but no status, nor what
the admission policies keep from users: a request that they refuse is not made.

He makes claims and templates that look like Parley's, names claims of others' pods, takes owners, marks and
finalizers off, and deletes what stands for other things. What he puts on objects goes when the others rest.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.soak.cluster.processes import acting_as
from tests.soak.kinds import pods
from tests.soak.kinds.claims import CLAIM_KINDS
from tests.soak.kinds.classes import CLASS_KINDS
from tests.soak.kinds.names import NAMESPACE, typed
from tests.support.containers import using

from parley.api.names import DEVICE_CLASS, FINALIZER, GENERATED_LABEL, MIRROR_LABEL, POD_CLAIM_NAME_ANNOTATION
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, PODS, Resource
from parley.kube.client import ApiError
from parley.kube.memory import MemoryServer
from parley.kube.memory.managed_fields import UPDATE, Manager
from parley.kube.memory.patches import merge_patch
from parley.kube.memory.watch_cache import Stored
from parley.simulate import admission

Json = dict[str, Any]
WHO = "tenant"
RIGHTS = admission.Rights(WHO)
HIS = "forged"
"""Name of his templates, and the beginning of his claims' and pods' names."""
HIS_FINALIZER = "tenant.example.org/stays"
MOST_PODS = 20


class Tenant:
    """Acts on a server."""

    def __init__(self, server: MemoryServer, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self._made = 0
        self._own: set[tuple[Resource[Any], str]] = set()
        self._owners_of: dict[str, list[Json]] = {}
        self._actions: list[Callable[[], None]] = [
            self._name_anothers_claim,
            self._use_forged_template,
            self._forge_template,
            self._forge_claim,
            self._forge_parley_claim,
            self._change_mirror,
            self._change_parley_claim,
            self._delete_mirror,
            self._delete_parley_claim,
        ]

    def act(self) -> None:
        """Do one thing."""
        with acting_as(WHO):
            if self._loose() and self._chance.random() < 0.4:
                self._name_anothers_claim()
            else:
                self._chance.choice(self._actions)()

    def mend(self) -> None:
        """Take away what would stay for ever."""
        with acting_as(WHO):
            for resource in (BUILTIN_CLAIMS, CLAIMS):
                for found in self._all(resource):
                    name, left = found.meta["name"], [f for f in _finalizers(found.body) if f != HIS_FINALIZER]
                    if left != _finalizers(found.body):
                        self._change(resource, found, {"metadata": {"finalizers": left or None}})
                    if (resource, name) in self._own:
                        self._delete(resource, name)
            self._delete(BUILTIN_TEMPLATES, HIS)
            self._return_owners()
            self._own.clear()

    def _return_owners(self) -> None:
        """Of the claims whose owners he changed. Those of pods that are gone go, too."""
        pods = {pod.meta["uid"] for pod in self._all(PODS)}
        for found in self._all(BUILTIN_CLAIMS):
            name, owners = found.meta["name"], self._owners_of.get(found.meta["uid"], [])
            if owners and owners[0]["uid"] in pods:
                body = {"metadata": {"ownerReferences": owners}}
                self._server.patch(BUILTIN_CLAIMS, name, body, NAMESPACE, Manager(WHO, UPDATE, ""))
            elif owners:
                self._server.delete(BUILTIN_CLAIMS, name, NAMESPACE)
        self._owners_of.clear()

    # -- pods

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{HIS}-{kind}-{self._made}"

    def _pod(self, entry: Json, node: str = "") -> None:
        if len(self._all(PODS)) < MOST_PODS:
            body = pods.pod(self._name("pod"), "plain", node=node, seconds=self._chance.uniform(10, 120))
            body["spec"]["resourceClaims"] = entries = [{"name": "gpu", **entry}]
            body["spec"]["containers"] = using(body["spec"]["containers"], entries)
            self._create(PODS, body)

    def _name_anothers_claim(self) -> None:
        """Through the scheduler, or put on the node where the claim can be used."""
        held = self._loose() or self._held()
        if not held:
            return
        found = self._chance.choice(held)
        users = [user["name"] for user in (found.body.get("status") or {}).get("reservedFor") or ()]
        there = [p.body["spec"].get("nodeName", "") for p in self._all(PODS) if p.meta["name"] in users]
        node = there[0] if there and self._chance.random() < 0.5 else ""
        self._pod({"resourceClaimName": found.meta["name"]}, node)

    def _use_forged_template(self) -> None:
        if all(found.meta["name"] != HIS for found in self._all(BUILTIN_TEMPLATES)):
            self._forge_template()
        self._pod({"resourceClaimTemplateName": HIS})

    # -- what looks like Parley's

    def _spec(self) -> Json:
        request = {
            "name": self._chance.choice(["exclusive", "shareable", "x"]),
            "exactly": {"deviceClassName": DEVICE_CLASS},
        }
        parameters = {"resourceClassName": self._chance.choice(sorted(CLASS_KINDS))}
        return {
            "devices": {
                "requests": [request],
                "config": [{"opaque": {"driver": "parley.dev", "parameters": parameters}}],
            }
        }

    def _forge_template(self) -> None:
        body = {"metadata": {"name": HIS, "namespace": NAMESPACE}, "spec": {"spec": self._spec()}}
        self._create(BUILTIN_TEMPLATES, typed(BUILTIN_TEMPLATES, body))

    def _owners(self) -> list[Json]:
        pod = self._some(PODS)
        if pod is None:
            return []
        meta = pod.meta
        return [{"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}]

    def _forge_claim(self) -> None:
        meta: Json = {
            "name": self._name("claim"),
            "namespace": NAMESPACE,
            "labels": {MIRROR_LABEL: "generated"},
            "annotations": {POD_CLAIM_NAME_ANNOTATION: self._chance.choice(["gpu", "gpu-0", "gpu-1"])},
            "ownerReferences": self._owners(),
        }
        self._create(BUILTIN_CLAIMS, typed(BUILTIN_CLAIMS, {"metadata": meta, "spec": self._spec()}))

    def _forge_parley_claim(self) -> None:
        """One of the name of another's claim, or with the mark of a stand-in."""
        found = self._some(BUILTIN_CLAIMS)
        taken = found is not None and self._chance.random() < 0.5 and found.meta["name"] not in CLAIM_KINDS
        labels = self._chance.choice([{}, {GENERATED_LABEL: "gpu-0"}])
        meta = {
            "name": found.meta["name"] if found is not None and taken else self._name("claim"),
            "namespace": NAMESPACE,
            "labels": labels,
            "ownerReferences": self._owners() if labels else [],
        }
        spec = {"resourceClassName": self._chance.choice(sorted(CLASS_KINDS))}
        self._create(CLAIMS, typed(CLAIMS, {"metadata": meta, "spec": spec}))

    # -- whose it is, and what marks it

    def _held(self) -> list[Stored]:
        return [one for one in self._all(BUILTIN_CLAIMS) if (one.body.get("status") or {}).get("reservedFor")]

    def _loose(self) -> list[Stored]:
        """Held claims of pods that a policy may take for what several pods share."""
        return [
            one
            for one in self._held()
            if one.body["spec"]["devices"]["requests"][0]["name"] != "exclusive"
            and one.meta["name"] not in CLAIM_KINDS
        ]

    def _change_mirror(self) -> None:
        held = self._held()
        found = self._chance.choice(held) if held else self._some(BUILTIN_CLAIMS)
        if found is not None:
            changed = self._chance.choice(self._mirror_changes(found.body))
            if "ownerReferences" in changed:
                self._owners_of.setdefault(found.meta["uid"], found.meta.get("ownerReferences") or [])
            self._change(BUILTIN_CLAIMS, found, {"metadata": changed})

    def _mirror_changes(self, body: Json) -> list[Json]:
        left = [name for name in _finalizers(body) if name != FINALIZER]
        owners: list[Json] = [{"ownerReferences": None}, {"ownerReferences": self._owners() or None}]
        return [
            *(owners if body["metadata"]["name"] not in CLAIM_KINDS else []),
            {"annotations": {POD_CLAIM_NAME_ANNOTATION: None}},
            {"annotations": {POD_CLAIM_NAME_ANNOTATION: "gpu-1"}},
            {"labels": {MIRROR_LABEL: None}},
            {"finalizers": left or None},
            {"finalizers": [*(name for name in _finalizers(body) if name != HIS_FINALIZER), HIS_FINALIZER]},
        ]

    def _change_parley_claim(self) -> None:
        if (found := self._some(CLAIMS)) is not None:
            left = [name for name in _finalizers(found.body) if name != FINALIZER]
            changes: list[Json] = [{"labels": {GENERATED_LABEL: "gpu-0"}}, {"finalizers": left or None}]
            self._change(CLAIMS, found, {"metadata": self._chance.choice(changes)})

    # -- deletion

    def _delete_mirror(self) -> None:
        if (found := self._some(BUILTIN_CLAIMS)) is not None:
            self._delete(BUILTIN_CLAIMS, found.meta["name"])

    def _delete_parley_claim(self) -> None:
        """What is not a user's own: named claims are deleted by others."""
        found = [one for one in self._all(CLAIMS) if one.meta["name"] not in CLAIM_KINDS]
        if found:
            self._delete(CLAIMS, self._chance.choice(found).meta["name"])

    # -- requests that the policies let pass

    def _all(self, resource: Resource[Any]) -> list[Stored]:
        return list(self._server.store.collection(resource).objects.values())

    def _some(self, resource: Resource[Any]) -> Stored | None:
        found = self._all(resource)
        return self._chance.choice(found) if found else None

    def _create(self, resource: Resource[Any], body: Json) -> None:
        if not admission.refused(resource, None, body, RIGHTS):
            try:
                self._server.create(resource, body, NAMESPACE, WHO)
                self._own.add((resource, body["metadata"]["name"]))
            except ApiError:
                pass  # the name is taken

    def _change(self, resource: Resource[Any], found: Stored, patch: Mapping[str, Any]) -> None:
        if not admission.refused(resource, found.body, merge_patch(found.body, patch), RIGHTS):
            name = found.meta["name"]
            try:
                self._server.patch(resource, name, dict(patch), NAMESPACE, Manager(WHO, UPDATE, ""))
            except ApiError:
                pass  # it is gone, or being deleted

    def _delete(self, resource: Resource[Any], name: str) -> None:
        found = next((one for one in self._all(resource) if one.meta["name"] == name), None)
        if found is not None and not admission.refused(resource, found.body, None, RIGHTS):
            self._server.delete(resource, name, NAMESPACE)


def _finalizers(body: Json) -> list[str]:
    return list(body["metadata"].get("finalizers") or ())
