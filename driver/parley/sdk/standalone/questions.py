"""Reads a PodScheduling's question: the claims of one driver with their classes, as a typed request. Pure."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from parley.api.builtin import Node, NodeSelector, ObjectMeta
from parley.api.models import PodScheduling, ResourceClaim, ResourceClass
from parley.api.names import GENERATED_LABEL
from parley.api.selectors import matches, selector_of, suitable_nodes
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.immediate import no_pod
from parley.sdk.parameters import RawClaim
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import ClaimRef
from parley.sdk.values import PodReference, Request


@dataclass(frozen=True, slots=True)
class ClaimEntry:
    """One of the pod's claims of this driver; `name` is the pod's entry for it."""

    name: str
    claim: ResourceClaim
    class_: ResourceClass

    @property
    def ref(self) -> ClaimRef:
        """The reference by which operations identify the claim."""
        meta = self.claim.metadata
        return ClaimRef((meta.namespace, meta.name), meta.uid)

    @property
    def terminating(self) -> bool:
        """Whether the claim is being deleted, or is to be deallocated."""
        return bool(self.claim.metadata.deletion_timestamp) or self.claim.status.deallocation_requested

    def raw(self) -> RawClaim:
        """The claim before its parameters are parsed."""
        meta, class_ = self.claim.metadata, self.class_
        return RawClaim(
            name=self.name,
            uid=meta.uid,
            namespace=meta.namespace,
            claim=meta.name,
            class_name=class_.metadata.name,
            parameters=self.claim.spec.parameters,
            class_parameters=class_.parameters,
            reference=self.claim.spec.parameters_ref,
            class_reference=class_.parameters_ref,
            prefer=class_.preference,
            generated=GENERATED_LABEL in meta.labels,
        )


@dataclass(frozen=True, slots=True)
class PodQuestion:
    """All of a pod's claims of this driver. Objects that hold parameters must have been read at the time `since`
    (the event loop's clock), when the claims were first seen, or later."""

    pod: PodReference
    entries: tuple[ClaimEntry, ...]
    candidates: tuple[str, ...] = ()
    round: int = 0
    priority: int = 0
    since: float = field(default=0.0, compare=False)

    @property
    def uid(self) -> str:
        """The UID of the pod; that of the claim, if it is allocated without a pod."""
        return self.pod.uid or self.entries[0].claim.metadata.uid

    @property
    def pending(self) -> tuple[ClaimEntry, ...]:
        """The claims that are not allocated yet: they are evaluated and allocated together."""
        return tuple(entry for entry in self.entries if entry.claim.status.allocation is None)

    def request(self, driver: EmbeddedDriver) -> Request[Any, Any]:
        """The pending claims with typed parameters. Raises BadParameters and ParametersUnavailable."""
        return driver.request(self.pod, [entry.raw() for entry in self.pending], self.since)

    @property
    def seconds(self) -> int:
        """How long allocating the pending claims may take: the smallest limit of their classes."""
        return min(entry.class_.allocation_timeout_seconds for entry in self.pending)

    @property
    def signature(self) -> Hashable:
        """Equal for pods with equal requests to the driver: where one can't be served, the other can't either.

        Does not include the candidate nodes, though answers are about them: a driver with resources elsewhere
        answers with alternatives, and a pod that can't go there is passed over after a while (see `waiting`). With
        the candidates, nearly every pod of a large cluster would wait in a line of its own. Includes the
        namespace, because the driver's answer may depend on it.
        """
        wanted = sorted(
            (e.class_.metadata.name, _json(e.claim.spec.parameters), repr(e.claim.spec.parameters_ref))
            for e in self.pending
        )
        allocated = sorted(e.claim.metadata.uid for e in self.entries if e.claim.status.allocation is not None)
        return (self.pod.namespace, tuple(wanted), tuple(allocated))

    @property
    def state(self) -> Hashable:
        """Changes when the question, its claims or their classes change."""
        claims = tuple((e.name, e.claim.metadata.uid, e.claim.status.allocation is None) for e in self.entries)
        classes = tuple(e.class_.revision for e in self.entries)
        return (self.pod, self.round, self.candidates, claims, classes)

    def suitable(self, nodes: Iterable[Node]) -> list[str]:
        """Names of the nodes that suit the pending claims' classes, and where the allocated claims can be used."""
        selectors = [selector for entry in self.entries if (selector := _limits(entry))]
        return [node.metadata.name for node in nodes if all(matches(selector, node) for selector in selectors)]


def question(informers: Informers, scheduling: PodScheduling, since: float = 0.0) -> PodQuestion | None:
    """The question of the PodScheduling; None as long as one of its claims or classes does not exist."""
    entries: list[ClaimEntry] = []
    namespace = scheduling.metadata.namespace
    for asked in informers.claims_of(scheduling):
        claim = informers.claim((namespace, asked.resource_claim_name))
        class_ = informers.class_of(claim) if claim is not None else None
        if claim is None or class_ is None:
            return None
        entries.append(ClaimEntry(asked.name, claim, class_))
    spec = scheduling.spec
    return PodQuestion(_pod(scheduling), tuple(entries), spec.candidate_nodes, spec.round, spec.priority, since)


def about_claim(claim: ResourceClaim, class_: ResourceClass, since: float = 0.0) -> PodQuestion:
    """The question about a claim that is to be allocated without a pod; its name is that of its entry."""
    meta = claim.metadata
    return PodQuestion(no_pod(meta.namespace), (ClaimEntry(meta.name, claim, class_),), since=since)


def _pod(scheduling: PodScheduling) -> PodReference:
    meta = scheduling.metadata
    uid = next((owner.uid for owner in meta.owner_references if owner.kind == "Pod"), "")
    return PodReference(meta.namespace, meta.name, uid)


def _json(parameters: Any) -> bytes:
    return orjson.dumps(parameters, option=orjson.OPT_SORT_KEYS)


def _limits(entry: ClaimEntry) -> NodeSelector | None:
    """The nodes where an allocated claim can be used; for others, the class's suitable nodes. None: all nodes."""
    allocation = entry.claim.status.allocation
    if allocation is None:
        return suitable_nodes(entry.class_)
    return selector_of(allocation.available_on_nodes) if allocation.available_on_nodes is not None else None


def available(entry: ClaimEntry, node: str, known: Node | None) -> bool:
    """Whether the allocated claim can be used on the node."""
    selector = _limits(entry)
    return selector is None or matches(selector, known or Node(metadata=ObjectMeta(name=node)))
