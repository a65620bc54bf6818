"""A model of the claim controller of kube-controller-manager 1.37.

It creates a claim for each pod entry that names a built-in template, or adopts an existing one, and lists it in
the pod's status. It reserves claims for pods that were bound without a scheduler. It removes reservations of pods
that are terminal, deleted, replaced, or were deleted before they were bound, and then deletes their generated
claims. As upstream, it assumes once that a claim exists that it created and that was deleted, and creates it again
only at the pod's next change; it creates claims of terminal pods again, and reserves claims for such pods
(kubernetes/kubernetes#141274), here a few times instead of for ever; and while a template is missing, the pod's
status lists none of its new claims. Left out: events about missing templates (it waits for the template instead),
and the deallocation of claims of structured parameters.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import structlog

from parley.api.builtin import BuiltinClaim, BuiltinTemplate, ConsumerReference, Pod, PodResourceClaim
from parley.api.names import POD_CLAIM_NAME_ANNOTATION
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, PODS
from parley.control.objects.mirror import consumer, owner_pod_uid
from parley.control.objects.pod import is_done, reference
from parley.kube.cache import Key
from parley.kube.client import Client, Forbidden, NotFound
from parley.kube.informer import Informer
from parley.kube.queue import WorkQueue, run_workers
from parley.simulate.pod_claims import MOST_USERS, claim_names, is_for_pod, is_reserved
from parley.simulate.status_writes import Consumers, change_consumers, patch_pod_by_name

_LONGEST_PREFIX = 57
_MOST_FOR_DONE = 3
"""The most times that a claim is reserved for a terminal pod, or created again for one."""
_DELAY_FOR_DONE = 0.1
"""Seconds before each reservation for a terminal pod."""

log = structlog.get_logger(__name__)

Entry = tuple[str, str, str]
"""A pod's namespace and UID, and the name of an entry in its `spec.resourceClaims`."""


class ClaimController:
    """Creates claims of pods, reserves them, and deletes them when the pods have ended."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pod_queue: WorkQueue[Key] = WorkQueue()
        self._claim_queue: WorkQueue[Key] = WorkQueue()
        self._generated: dict[Entry, str] = {}
        self._named: defaultdict[Key, dict[Key, None]] = defaultdict(dict)
        """Index of pods by the claims that they use."""
        self._reserved_for_done: Counter[tuple[str, str]] = Counter()
        self._recreated_for_done: Counter[Entry] = Counter()
        self._created: set[Key] = set()
        """The mutation cache: claims that it created. One that is not in the informer is dropped when it is looked
        up."""
        self._pods = Informer(client, PODS, on_change=self._pod)
        self._claims = Informer(client, BUILTIN_CLAIMS, on_change=self._claim)
        self._templates = Informer(client, BUILTIN_TEMPLATES, on_change=self._template)

    async def run(self) -> None:
        """Work until cancelled."""
        informers = (self._templates, self._claims, self._pods)
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            for informer in informers:
                await informer.synced.wait()
            tasks.create_task(run_workers(self._pod_queue, self._sync_pod, 1))
            tasks.create_task(run_workers(self._claim_queue, self._sync_claim, 1))

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None:
            for name in claim_names(old):
                self._named[old.metadata.namespace, name].pop((old.metadata.namespace, old.metadata.name), None)
        if new is not None:
            for name in claim_names(new):
                self._named[new.metadata.namespace, name][new.metadata.namespace, new.metadata.name] = None
        for pod in (old, new):
            if pod is not None and pod.spec.resource_claims:
                namespace = pod.metadata.namespace
                self._pod_queue.add((namespace, pod.metadata.name))
                for name in claim_names(pod):
                    self._claim_queue.add((namespace, name))

    def _claim(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        for claim in (old, new):
            if claim is None:
                continue
            self._claim_queue.add((claim.metadata.namespace, claim.metadata.name))
            for owner in claim.metadata.owner_references:
                self._pod_queue.add((claim.metadata.namespace, owner.name))
            for user in self._named.get((claim.metadata.namespace, claim.metadata.name), ()):
                self._pod_queue.add(user)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._generated.pop(_entry_of(old), None)
        if new is not None and owner_pod_uid(new):
            self._generated[_entry_of(new)] = new.metadata.name

    def _template(self, _old: BuiltinTemplate | None, new: BuiltinTemplate | None) -> None:
        for pod in self._pods.values():
            if new is not None and pod.metadata.namespace == new.metadata.namespace:
                self._pod_queue.add((pod.metadata.namespace, pod.metadata.name))

    async def _sync_pod(self, key: Key) -> None:
        """Create the pod's missing claims, list them in its status, and reserve them if it is bound."""
        pod = self._pods.get(*key)
        if pod is None or pod.metadata.deletion_timestamp:
            return
        listed = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        names = dict(listed)
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name is None:
                continue
            if not (name := await self._claim_for(pod, entry, listed.get(entry.name) or "")):
                return
            names[entry.name] = name
        if names != listed:
            statuses = [{"name": entry, "resourceClaimName": name} for entry, name in names.items()]
            await patch_pod_by_name(self._client, pod, {"resourceClaimStatuses": statuses})
        if pod.spec.node_name:
            await self._reserve(pod)

    async def _claim_for(self, pod: Pod, entry: PodResourceClaim, listed: str) -> str | None:
        """The name of the pod's generated claim, created now if it is missing; None while its template is
        missing."""
        client, namespace = self._client, pod.metadata.namespace
        of_pod = namespace, pod.metadata.uid, entry.name
        if listed and (self._claim_exists(pod, listed) or self._recreated_for_done[of_pod] >= _MOST_FOR_DONE):
            return listed
        if (known := self._generated.get(of_pod)) is not None:
            return known
        template = self._templates.get(namespace, entry.resource_claim_template_name or "")
        if template is None:
            return None
        body = (await client.get(BUILTIN_TEMPLATES.untyped(), template.metadata.name, namespace))["spec"]
        made = await client.create(BUILTIN_CLAIMS, _generated_claim(pod, entry.name, body), namespace)
        self._generated[of_pod] = made.metadata.name
        self._recreated_for_done[of_pod] += is_done(pod)
        self._created.add((namespace, made.metadata.name))
        return made.metadata.name

    def _claim_exists(self, pod: Pod, name: str) -> bool:
        """Whether the claim that the pod's status names exists, as far as the controller knows, and is the
        pod's."""
        key = pod.metadata.namespace, name
        claim = self._claims.get(*key)
        if claim is not None:
            return is_for_pod(claim, pod)
        was_created = key in self._created
        self._created.discard(key)
        return was_created

    async def _reserve(self, pod: Pod) -> None:
        """Reserve the allocated claims of a bound pod, whichever component bound it; stops at a missing claim."""
        mine = consumer(reference(pod))
        for name in claim_names(pod):
            claim = self._claims.get(pod.metadata.namespace, name)
            if claim is None or not is_for_pod(claim, pod):
                return
            if claim.status.allocation is None or len(claim.status.reserved_for) >= MOST_USERS:
                continue
            if is_reserved(claim, pod) or not await self._may_be_reserved(claim, pod):
                continue
            await self._change_consumers(
                claim, lambda known: known if _named(known, mine["uid"]) else [*known, mine]
            )

    async def _may_be_reserved(self, claim: BuiltinClaim, pod: Pod) -> bool:
        if not is_done(pod):
            return True
        who = claim.metadata.uid, pod.metadata.uid
        if self._reserved_for_done[who] >= _MOST_FOR_DONE:
            return False
        self._reserved_for_done[who] += 1
        await asyncio.sleep(_DELAY_FOR_DONE)
        return True

    async def _sync_claim(self, key: Key) -> None:
        """Remove reservations of pods that have ended, and delete the claim if it was generated for one of
        them."""
        claim = self._claims.get(*key)
        if claim is None:
            return
        ended = {c.uid for c in claim.status.reserved_for if not await self._keeps_reservation(key[0], c)}
        if ended:
            await self._change_consumers(claim, lambda known: [c for c in known if c["uid"] not in ended])
        used = len(ended) < len(claim.status.reserved_for)
        owner = owner_pod_uid(claim)
        if owner and not used and not claim.metadata.deletion_timestamp:
            names = [o.name for o in claim.metadata.owner_references if o.uid == owner]
            known = self._pods.get(key[0], names[0]) is not None  # else the garbage collector deletes the claim
            if known and not self._uses(key[0], names[0], owner):
                await self._delete(claim)

    async def _change_consumers(self, claim: BuiltinClaim, change: Callable[[Consumers], Consumers]) -> None:
        try:
            await change_consumers(self._client, claim, change)
        except Forbidden as error:
            log.debug("reservation refused", claim=claim.metadata.name, error=error.message)

    async def _keeps_reservation(self, namespace: str, user: ConsumerReference) -> bool:
        """Whether the reservation is kept. A pod that is not in the cache may be new, and is read from the API."""
        if self._pods.get(namespace, user.name) is not None:
            return self._uses(namespace, user.name, user.uid)
        try:
            return (await self._client.get(PODS, user.name, namespace)).metadata.uid == user.uid
        except NotFound:
            return False

    def _uses(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the pod exists and may run."""
        pod = self._pods.get(namespace, name)
        return pod is not None and pod.metadata.uid == uid and not is_done(pod)

    async def _delete(self, claim: BuiltinClaim) -> None:
        """Delete the claim by name, without a precondition on its UID."""
        try:
            await self._client.delete(BUILTIN_CLAIMS, claim.metadata.name, claim.metadata.namespace)
        except NotFound:
            pass  # the garbage collector was faster


def _named(consumers: Consumers, uid: str) -> bool:
    return any(consumer["uid"] == uid for consumer in consumers)


def _entry_of(claim: BuiltinClaim) -> Entry:
    entry = claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, "")
    return claim.metadata.namespace, owner_pod_uid(claim), entry


def _generated_claim(pod: Pod, entry: str, template: dict[str, Any]) -> dict[str, Any]:
    meta = template.get("metadata", {})
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
    }
    return {
        "apiVersion": BUILTIN_CLAIMS.api_version,
        "kind": BUILTIN_CLAIMS.kind,
        "metadata": {
            "generateName": _prefix(pod.metadata.name, entry),
            "labels": meta.get("labels", {}),
            "annotations": {**meta.get("annotations", {}), POD_CLAIM_NAME_ANNOTATION: entry},
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }


def _prefix(pod: str, entry: str) -> str:
    """The prefix of the generated name; upstream shortens both parts proportionally if it is too long."""
    prefix = f"{pod}-{entry}-"
    if len(prefix) <= _LONGEST_PREFIX:
        return prefix
    pod_length, entry_length = (len(part) * _LONGEST_PREFIX // len(prefix) for part in (pod, entry))
    return f"{pod[:pod_length]}-{entry[:entry_length]}"
