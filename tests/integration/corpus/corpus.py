"""What a hostile user of one namespace sends: objects of every kind that it may create, wrong in every field.

Half of the objects begin as something that works, so that the fault in them is met as late as possible. All
choices come from one source of randomness; a seed and what the API server answered tell the whole course.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.cluster.manifests import claim, pod, template
from tests.integration.corpus.values import VALUES, encode, mark

from parley.api.names import API_VERSION, DEVICE_CLASS, FINALIZER, GROUP, POD_CLAIM_NAME_ANNOTATION

Manifest = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON = "application/json"

PODS, CLAIMS, TEMPLATES = "/api/v1", "/apis/resource.k8s.io/v1", f"/apis/{API_VERSION}"
_PLURALS = {
    ("v1", "Pod"): (PODS, "pods"),
    ("v1", "ConfigMap"): (PODS, "configmaps"),
    ("resource.k8s.io/v1", "ResourceClaim"): (CLAIMS, "resourceclaims"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): (CLAIMS, "resourceclaimtemplates"),
    (API_VERSION, "ResourceClaim"): (TEMPLATES, "resourceclaims"),
    (API_VERSION, "ResourceClaimTemplate"): (TEMPLATES, "resourceclaimtemplates"),
    (API_VERSION, "PodScheduling"): (TEMPLATES, "podschedulings"),
}

NAMES = tuple(f"h{number}" for number in range(40))
"""Few, so that what is made, changed and deleted meets again, under one name in every kind."""

REQUESTS = ("exclusive", "shareable", "x", "exclusive-0", "")
ANNOTATIONS = (
    POD_CLAIM_NAME_ANNOTATION,
    f"{GROUP}/settled",
    f"{GROUP}/look-again",
)
LABELS = tuple(f"{GROUP}/{name}" for name in ("mirror", "generated-for", "generated", "drivers"))
RUNS = ("7", "b-c", "x.y", "Build_7")
"""Values of the label by which templates make claims on demand."""
LABEL_VALUES = ("true", "named", "generated", "template", "standalone", "")
TEXTS = (
    "count: 1",
    '{"memory": "1Gi"}',
    "count: many",
    "a: &a [1, 2]\nb: [*a, *a]",
    "a: !!python/object:os.system x",
    "[" * 9_000,
    "a: [" + "[]," * 3_000,
    "{a: " * 2_000,
    "x" * 200_000,
    "",
)
"""Of ConfigMaps that claims name."""

FORGED: tuple[Any, ...] = (
    3,
    {},
    {"kind": "ConfigMap", "name": "../../secrets/s"},
    {"kind": "ConfigMap", "name": "h1"},
)
"""References in what looks like a mirror."""

FINALIZERS = (FINALIZER, "device.parley.dev/deletion-protection", "example.com/mine", "foregroundDeletion")


@dataclass(frozen=True)
class Request:
    """One request, as it is sent."""

    method: str
    path: str
    body: bytes | None = None
    content_type: str = JSON

    @property
    def name(self) -> str:
        return self.path.partition("?")[0].rsplit("/", 1)[1]


@dataclass
class Known:
    """What the tenant knows of its namespace: what it may aim at."""

    objects: list[str] = field(default_factory=list)
    """Paths of objects that it made and did not delete."""
    claims: Sequence[str] = ()
    """Names of built-in claims that others made for it: generated ones and mirrors."""
    pods: Sequence[tuple[str, str]] = ()
    """Names and UIDs of its pods."""


class Corpus:
    """The next request, for ever."""

    def __init__(self, random: Random, namespace: str, nodes: Sequence[str], known: Known) -> None:
        self._random = random
        self._namespace = namespace
        self._nodes = nodes
        self._known = known

    def next(self) -> Request:
        """Made with what is known by now."""
        ways: dict[Callable[[], Request], int] = {
            self._create: 58,
            self._change: 18,
            self._delete: 18,
            self._forbidden: 6,
        }
        (way,) = self._random.choices(list(ways), list(ways.values()))
        return way()

    def _path(self, manifest: Manifest) -> str:
        prefix, plural = _PLURALS[manifest["apiVersion"], manifest["kind"]]
        return f"{prefix}/namespaces/{self._namespace}/{plural}"

    def _create(self) -> Request:
        manifest = copy.deepcopy(self._manifest())
        if self._random.random() < 0.5:
            self._attribute(manifest)
        if self._random.random() < 0.6:
            self._spoil(manifest)
        return Request("POST", self._path(manifest), encode(manifest))

    def _manifest(self) -> Manifest:
        makers = (
            self._pod,
            self._pod,
            self._mirror,
            self._mirror_template,
            self._claim,
            self._template,
            self._config_map,
        )
        return self._random.choice(makers)()

    def _name(self) -> str:
        taken = self._known.claims
        return self._random.choice(taken) if taken and self._random.random() < 0.1 else self._random.choice(NAMES)

    def _pod(self) -> Manifest:
        """Names templates, claims of its own, and claims generated for others."""
        entries = self._random.sample(("a", "b", "c"), self._random.choice((1, 1, 1, 2, 3)))
        templates = {e: self._random.choice(NAMES) for e in entries if self._random.random() < 0.6}
        claims = {e: self._any_claim() for e in entries if e not in templates}
        labels = {"run": self._random.choice(RUNS), "run-uid": self._random.choice(NAMES)}
        made = pod(self._name(), templates=templates, claims=claims, labels=labels)
        if self._random.random() < 0.15:
            made["spec"]["nodeName"] = self._random.choice((*self._nodes, "no-such-node"))
        return made

    def _any_claim(self) -> str:
        if self._known.claims and self._random.random() < 0.5:
            return self._random.choice(self._known.claims)
        if self._random.random() < 0.3:
            return f"{self._random.choice(NAMES)}-{self._random.choice(RUNS)}"
        return self._random.choice(NAMES)

    def _parameters(self) -> Manifest:
        return self._random.choice(({}, {"count": 1}, {"memory": "1Gi"}, {"count": 1, "shared": True}))

    def _claim(self) -> Manifest:
        made = claim(self._name(), self._random.choice(("gpu", "gpu", "shared", "nowhere")), **self._parameters())
        made["spec"]["allocationMode"] = self._random.choice(("WaitForFirstConsumer", "Immediate"))
        return self._referring(made, made["spec"])

    def _template(self) -> Manifest:
        made = template(self._name(), self._random.choice(("gpu", "gpu", "shared")), **self._parameters())
        if self._random.random() < 0.4:
            made["spec"]["sharedBy"] = self._shared_by()
        return self._referring(made, made["spec"]["spec"])

    def _shared_by(self) -> Manifest:
        """For a claim on demand, perhaps with an owner that never was, or with marks that are Parley's."""
        owner = {
            "apiVersion": "v1",
            "kind": self._random.choice(("Pod", "Node", "Nothing")),
            "uidLabel": "run-uid",
        }
        return {"podLabel": "run", **({"owner": owner} if self._random.random() < 0.5 else {})}

    def _referring(self, made: Manifest, spec: Manifest) -> Manifest:
        """Sometimes with parameters in an object, which may be there."""
        if self._random.random() < 0.4:
            del spec["parameters"]
            kind = self._random.choice(("ConfigMap", "ConfigMap", "ConfigMap", "Secret"))
            spec["parametersRef"] = {"kind": kind, "name": self._random.choice((*NAMES, "none"))}
        return made

    def _config_map(self) -> Manifest:
        text = self._random.choice(TEXTS)
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name()},
            "data": {"parameters": text},
            "spec": {},
        }

    def _mirror_spec(self) -> Manifest:
        requests = [
            {"name": name, "exactly": {"deviceClassName": DEVICE_CLASS}}
            for name in self._random.sample(REQUESTS, self._random.choice((1, 1, 1, 2)))
        ]
        asked: Manifest = {"resourceClassName": self._random.choice(("gpu", "shared", "nowhere"))}
        if self._random.random() < 0.3:
            asked["parametersRef"] = self._random.choice(FORGED)
        config = {"opaque": {"driver": GROUP, "parameters": {**asked, "parameters": self._parameters()}}}
        return {"devices": {"requests": requests, "config": [config]}}

    def _mirror(self) -> Manifest:
        """A built-in claim that looks like one of Parley's."""
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": self._name()},
            "spec": self._mirror_spec(),
        }

    def _mirror_template(self) -> Manifest:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": self._name()},
            "spec": {"spec": self._mirror_spec()},
        }

    def _attribute(self, manifest: Manifest) -> None:
        """Give it what belongs to another, or to Parley."""
        manifest["metadata"].update(self._metadata())

    def _metadata(self) -> Manifest:
        choices: list[Manifest] = [
            {"annotations": {self._random.choice(ANNOTATIONS): self._random.choice(("a", "b", *self._nodes))}},
            {"labels": {self._random.choice(LABELS): self._random.choice(LABEL_VALUES)}},
            {"finalizers": [self._random.choice(FINALIZERS)]},
            {"ownerReferences": self._owners()},
        ]
        return self._random.choice(choices)

    def _owners(self) -> list[Manifest]:
        """A pod of its own, or one that never was."""
        if not self._known.pods or self._random.random() < 0.3:
            name, uid = "nobody", "00000000-0000-0000-0000-000000000000"
        else:
            name, uid = self._random.choice(self._known.pods)
        return [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}]

    def _spoil(self, manifest: Manifest) -> None:
        """Put a hostile value into one to three fields, whichever they are."""
        for _ in range(self._random.choice((1, 1, 2, 3))):
            holder, key = self._random.choice(
                list(_places(manifest["spec"])) + list(_places(manifest["metadata"]))
            )
            value = mark(self._random.choice(tuple(VALUES)))
            if isinstance(holder, dict) and self._random.random() < 0.3:
                holder[self._random.choice(("extra", "parameters", "memory", "count", "x" * 254))] = value
            else:
                holder[key] = value

    def _change(self) -> Request:
        """What a user may change: labels, annotations, owners, finalizers; and all the rest, which is refused."""
        body: Manifest = {"metadata": self._metadata()}
        if self._random.random() < 0.4:
            field_name = self._random.choice(("ownerReferences", "annotations", "labels", "finalizers"))
            body = {"metadata": {field_name: None}}
        if self._random.random() < 0.2:
            body["spec"] = mark(self._random.choice(tuple(VALUES)))
        return Request("PATCH", self._target(), encode(body), MERGE)

    def _delete(self) -> Request:
        """At any moment, in any way; pods without grace, since no kubelet ends them."""
        target = self._target()
        policy = self._random.choice(("Background", "Foreground", "Orphan"))
        grace = "&gracePeriodSeconds=0" if "/pods/" in target else ""
        return Request("DELETE", f"{target}?propagationPolicy={policy}{grace}")

    def _target(self) -> str:
        """Something that the tenant made, or that was made for it."""
        if self._known.objects and self._random.random() < 0.7:
            return self._random.choice(self._known.objects)
        prefix, plural = self._random.choice(list(_PLURALS.values()))
        return f"{prefix}/namespaces/{self._namespace}/{plural}/{self._any_claim()}"

    def _forbidden(self) -> Request:
        """What the role does not grant: status, PodSchedulings, bindings, what is the cluster's."""
        status: Manifest = {"status": {"reservedFor": [], "allocation": None, "driverName": "tokens.parley.dev"}}
        scheduling = {
            "apiVersion": API_VERSION,
            "kind": "PodScheduling",
            "metadata": {"name": self._random.choice(NAMES)},
            "spec": {"candidateNodes": [mark(self._random.choice(tuple(VALUES)))]},
        }
        cluster_wide = {
            "apiVersion": API_VERSION,
            "kind": "ResourceClass",
            "metadata": {"name": "mine"},
            "driverName": "device.parley.dev",
        }
        return self._random.choice(
            (
                Request("PATCH", f"{self._target()}/status", encode(status), MERGE),
                Request("POST", self._path(scheduling), encode(scheduling)),
                Request("POST", f"{TEMPLATES}/resourceclasses", encode(cluster_wide)),
                Request("DELETE", f"{CLAIMS}/resourceslices/{self._random.choice(self._nodes)}-device.parley.dev"),
            )
        )


def _places(value: Any) -> Any:
    """Every field of the tree, as its holder and its key there."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from _places(inner)
