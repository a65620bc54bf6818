"""Writes PodSchedulings: the state of a pod's negotiation, in one object that lives as long as the pod.

If standalone drivers are asked, this object is the question, and they write their answers into it.

Publishing is apart from deciding: nothing waits for it. The latest state of each pod is written once; while a
write is under way, newer states replace each other. In the normal case that is a single create per pod.

Writes have no precondition, since drivers write the same object at any time. So a write whose answer was lost, or
one of an earlier leader, may undo a later one. That shows in the object, which is then written again.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from msgspec import to_builtins

from parley.api.models import PodScheduling
from parley.api.names import API_VERSION, DRIVERS_LABEL, FIELD_MANAGER, STANDALONE
from parley.api.resources import POD_SCHEDULINGS
from parley.kube.backoff import Backoff
from parley.kube.cache import Key
from parley.kube.client import AlreadyExists, Client, Conflict, Invalid, NotFound
from parley.kube.queue import WorkQueue
from parley.negotiation.rounds import MAX_CANDIDATES, Outcome
from parley.sdk import PodReference
from parley.sdk.checks import MAX_CLAIMS

_REASON_LIMIT = 4096

REWRITES = Backoff(first=0.2, longest=60)
"""Pauses before a PodScheduling that keeps being deleted or changed is written again."""


@dataclass(frozen=True, slots=True)
class StandaloneClaim:
    """A claim that a standalone driver has to allocate: the pod's entry, and the Parley claim."""

    entry: str
    driver: str
    claim: str


@dataclass(frozen=True, slots=True)
class Question:
    """The question to standalone drivers: about these claims, or none any more, of a pod of that priority."""

    claims: tuple[StandaloneClaim, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a pod's negotiation. `drivers` has the driver's name by claim entry; without `question` no
    standalone driver was ever asked about the pod."""

    outcome: Outcome
    drivers: Mapping[str, str]
    selected: str = ""
    waiting_for: str = ""
    message: str = ""
    question: Question | None = None

    @property
    def selects(self) -> bool:
        """Whether standalone drivers are asked to allocate."""
        return bool(self.selected and self.question is not None and self.question.claims)


_FINAL = Report(Outcome(), {})
"""Stands for the last report about a bound pod, which need not be remembered as it does not change any more. Also
written to close a PodScheduling."""

_ASKED = Report(Outcome(), {}, "a node", question=Question((StandaloneClaim("", "", ""),)))
"""The same for a PodScheduling that still asks standalone drivers to allocate on a node. They have done so."""


def body(pod: PodReference, report: Report) -> dict[str, Any]:
    """The complete PodScheduling for the report."""
    outcome, question = report.outcome, report.question
    standalone = {claim.entry for claim in question.claims} if question is not None else set()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "ownerReferences": [owner]}
    spec: dict[str, Any] = {
        "candidateNodes": _candidates(outcome),
        "round": outcome.round,
        "selectedNode": report.selected,
    }
    if question is not None:
        metadata["labels"] = {DRIVERS_LABEL: STANDALONE}
        spec["priority"] = question.priority
        spec["claims"] = [
            {"name": claim.entry, "driverName": claim.driver, "resourceClaimName": claim.claim}
            for claim in question.claims
        ]
    answered = [(name, driver) for name, driver in report.drivers.items() if name not in standalone]
    return {
        "apiVersion": API_VERSION,
        "kind": "PodScheduling",
        "metadata": metadata,
        "spec": spec,
        "status": {
            "claims": [_claim(name, driver, outcome) for name, driver in answered[:MAX_CLAIMS]],
            "candidates": len(outcome.candidates),
            "viable": len(outcome.viable),
            "waitingFor": report.waiting_for,
            "message": report.message[:_REASON_LIMIT],
        },
    }


def _candidates(outcome: Outcome) -> list[str]:
    return list(outcome.candidates[:MAX_CANDIDATES])


def _claim(name: str, driver: str, outcome: Outcome) -> dict[str, Any]:
    claim: dict[str, Any] = {"name": name, "driverName": driver, "round": outcome.round}
    answer = outcome.answers.get(name)
    if answer is None:
        return claim
    claim["viableNodes"] = list(answer.viable)
    claim["reason"] = "; ".join(f"{node}: {why}" for node, why in answer.reasons.items())[:_REASON_LIMIT]
    if answer.alternatives is not None:
        claim["alternatives"] = (
            {"nodes": list(answer.alternatives)}
            if isinstance(answer.alternatives, tuple)
            else {"nodeSelector": to_builtins(answer.alternatives)}
        )
    return claim


class Publisher:
    """Keeps the PodSchedulings of the pods up to date. Run `publish` by a few workers of `queue`.

    `shown` returns the cached PodScheduling of a name with which standalone drivers were asked, `there` whether
    the cache has that pod: nothing is remembered of other pods.
    """

    def __init__(
        self,
        client: Client,
        queue: WorkQueue[PodReference],
        shown: Callable[[Key], PodScheduling | None],
        there: Callable[[PodReference], bool],
    ) -> None:
        self._client = client
        self._queue = queue
        self._shown = shown
        self._has_pod = there
        self._locks: WeakValueDictionary[PodReference, asyncio.Lock] = WeakValueDictionary()
        self._wanted: dict[PodReference, Report] = {}
        self._writing: dict[PodReference, Report] = {}
        self._written: dict[PodReference, Report] = {}
        self._versions: dict[PodReference, int] = {}
        """The resourceVersion of our latest write, where standalone drivers were asked."""
        self._losses: dict[PodReference, int] = {}
        self._left_waiting: set[PodReference] = set()
        """Pods that wait according to a PodScheduling that an earlier run wrote."""

    def enqueue(self, pod: PodReference, report: Report) -> None:
        """Write this report for the pod, unless it is written already."""
        if pod not in self._wanted and (self._writing.get(pod) or self._written.get(pod)) == report:
            return
        self._wanted[pod] = report
        if losses := self._losses.get(pod):
            self._queue.add_after(pod, REWRITES.delay(losses))
        else:
            self._queue.add(pod)

    def known(self, pod: PodReference) -> bool:
        """Whether something was written for the pod, or is about to be."""
        return pod in self._written or pod in self._wanted

    def adopt(self, pod: PodReference, *, asked: bool) -> None:
        """Note a PodScheduling that an earlier run wrote, and whether it asks standalone drivers."""
        self._written[pod] = _ASKED if asked else _FINAL
        self._forget_if_gone(pod)

    def adopt_waiting(self, pod: PodReference) -> None:
        """Note a PodScheduling that an earlier run wrote, and that says that the pod waits."""
        self._left_waiting.add(pod)
        self._forget_if_gone(pod)

    def shows(self, pod: PodReference) -> bool:
        """Whether the pod has a PodScheduling, or is about to get one, that has to be kept up to date."""
        return self.known(pod) or pod in self._left_waiting

    def pod_bound(self, pod: PodReference, node: str) -> bool:
        """Note that the pod is bound to the node. Returns whether its PodScheduling shows that already."""
        written = self._written.get(pod)
        if written is None or pod in self._wanted or written.waiting_for or written.selected != node:
            return False
        self._written[pod] = _ASKED
        return True

    def scheduling_deleted(self, pod: PodReference) -> None:
        """Handle the deletion of the pod's PodScheduling: it is written again with the next change, with back-off.

        Back-off, because that of a pod that is gone, which the cache has yet to show, is deleted after each write.
        """
        self._versions.pop(pod, None)
        if self._written.pop(pod, None) is not None:
            self._losses[pod] = self._losses.get(pod, 0) + 1

    def scheduling_changed(self, pod: PodReference) -> None:
        """Handle the event of the pod's PodScheduling. If it asks something else than was written last, that is
        written again, with back-off."""
        lock = self._locks.get(pod)
        if pod in self._wanted or (lock is not None and lock.locked()) or not self._is_undone(pod):
            return
        self._losses[pod] = self._losses.get(pod, 0) + 1
        self._wanted[pod] = self._written[pod]
        self._queue.add_after(pod, REWRITES.delay(self._losses[pod]))

    def _is_undone(self, pod: PodReference) -> bool:
        """Whether the cached PodScheduling asks something else than was written last."""
        shown, written = self._shown((pod.namespace, pod.name)), self._written.get(pod)
        if shown is None or written is None or written is _ASKED:
            return False
        if all(owner.uid != pod.uid for owner in shown.metadata.owner_references):
            return False
        if int(shown.metadata.resource_version) < self._versions.get(pod, 0):
            return False
        spec = shown.spec
        if written.question is None:
            return bool(spec.claims and spec.selected_node)
        asked = {StandaloneClaim(c.name, c.driver_name, c.resource_claim_name) for c in spec.claims}
        outcome = written.outcome
        wanted = (set(written.question.claims), written.selected, outcome.round, _candidates(outcome))
        return (asked, spec.selected_node, spec.round, list(spec.candidate_nodes)) != wanted

    def forget(self, pod: PodReference) -> None:
        """Forget the pod: it is gone, and its PodScheduling is garbage-collected."""
        self._wanted.pop(pod, None)
        self._written.pop(pod, None)
        self._versions.pop(pod, None)
        self._losses.pop(pod, None)
        self._left_waiting.discard(pod)

    def _forget_if_gone(self, pod: PodReference) -> bool:
        """Forget the pod if it is gone by now, which may happen during a write. Returns whether it is."""
        gone = not self._has_pod(pod)
        if gone:
            self.forget(pod)
        return gone

    async def publish(self, pod: PodReference) -> None:
        """Write the pod's latest state, if it is not written yet."""
        async with self._locks.setdefault(pod, asyncio.Lock()):
            if self._forget_if_gone(pod):
                return
            report = self._wanted.pop(pod, None)
            if report is None:
                return
            try:
                await self._write(pod, report, first=pod not in self._written)
            except BaseException:
                self._wanted.setdefault(pod, report)
                self._forget_if_gone(pod)
                raise
        self._after_write(pod)

    def _after_write(self, pod: PodReference) -> None:
        if not self._forget_if_gone(pod):
            self.scheduling_changed(pod)  # events during the write were not compared

    async def close(self, pod: PodReference) -> bool:
        """Withdraw what standalone drivers are asked for the pod. Returns whether a write was needed.

        Done before a driver is asked to deallocate: it would allocate again at once while a node is still
        selected.
        """
        await self.publish(pod)
        written = self._written.get(pod)
        if written is not None and not written.selects and not self._is_undone(pod):
            return False
        async with self._locks.setdefault(pod, asyncio.Lock()):
            await self._write(pod, _FINAL, first=False)
        self._after_write(pod)
        return True

    async def _write(self, pod: PodReference, report: Report, *, first: bool) -> None:
        asks = report.question is not None and report.question.claims
        self._writing[pod] = report
        try:
            meta = (await self._put(pod, report, first=first)).metadata
        except NotFound:
            if report is _FINAL:
                self._written.pop(pod, None)
                return  # nothing is asked then
            # The namespace or the object is being deleted, and the pod with it.
        else:
            if DRIVERS_LABEL in meta.labels:
                self._versions[pod] = int(meta.resource_version)
        finally:
            del self._writing[pod]
        self._written[pod] = report if report.waiting_for or asks else _FINAL

    async def _put(self, pod: PodReference, report: Report, *, first: bool) -> PodScheduling:
        if report is _FINAL:
            return await self._patch(pod, {"spec": {"claims": [], "selectedNode": ""}})
        wanted = body(pod, report)
        if report.question is not None:
            return await self._ask(pod, wanted, report.question)
        if (shown := self._shown((pod.namespace, pod.name))) is not None and shown.spec.claims:
            wanted["spec"]["claims"] = []
        if first:
            try:
                return await self._client.create(
                    POD_SCHEDULINGS, wanted, pod.namespace, field_manager=FIELD_MANAGER
                )
            except AlreadyExists:
                pass  # written by an earlier run of the controller
        return await self._patch(pod, wanted)

    async def _ask(self, pod: PodReference, wanted: dict[str, Any], question: Question) -> PodScheduling:
        try:
            applied = await self._apply(pod, wanted)
        except Invalid:
            if not await self._removed_obstacle(pod, wanted):
                raise
            applied = await self._apply(pod, wanted)
        asked = {claim.entry: claim.driver for claim in question.claims}
        shown = {one.name: one.driver_name for one in applied.status.claims}
        before = self._written[pod].drivers if pod in self._written else {}
        if all(shown.get(entry, driver) == driver == before.get(entry, driver) for entry, driver in asked.items()):
            return applied
        # Our own entries, not applied but patched before the claim became another driver's, which may have
        # answered late. Fields that it omits in its next answer would stay, or become null, which the API server
        # refuses for kinds of a CRD.
        await self._empty(pod, applied, wanted)
        return await self._apply(pod, wanted)

    async def _patch(self, pod: PodReference, wanted: dict[str, Any]) -> PodScheduling:
        return await self._client.patch(
            POD_SCHEDULINGS, pod.name, wanted, pod.namespace, field_manager=FIELD_MANAGER
        )

    async def _removed_obstacle(self, pod: PodReference, wanted: dict[str, Any]) -> bool:
        """Remove what may have made an apply fail: the PodScheduling of an earlier pod of the name, or lists that
        were not applied but patched before. Returns whether there was such a thing.

        That of an earlier pod, which the garbage collector has yet to delete, fails because an object has only one
        controller, and an apply keeps what others own. And for a list's last entry, or a field's value, that is
        not applied any more, an apply leaves null, which the API server refuses for kinds of a CRD.
        """
        try:
            found = await self._client.get(POD_SCHEDULINGS, pod.name, pod.namespace)
            if all(owner.uid != pod.uid for owner in found.metadata.owner_references):
                await self._client.delete(POD_SCHEDULINGS, pod.name, pod.namespace, uid=found.metadata.uid)
            elif found.spec.claims or found.status.claims:
                await self._empty(pod, found, wanted)
            else:
                return False
        except (NotFound, Conflict):
            pass  # it is gone by now, or replaced
        return True

    async def _empty(self, pod: PodReference, found: PodScheduling, wanted: dict[str, Any]) -> None:
        """Empty the lists, which are applied afterwards. Drivers whose answers were in them answer again."""
        meta = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
        emptied: dict[str, Any] = {"metadata": meta, "status": {"claims": []}}
        if not wanted["spec"]["claims"]:
            emptied["spec"] = {"claims": []}
        await self._patch(pod, emptied)

    async def _apply(self, pod: PodReference, wanted: dict[str, Any]) -> PodScheduling:
        """Apply the PodScheduling. Entries that are missing in it belong to standalone drivers, and stay."""
        return await self._client.apply(
            POD_SCHEDULINGS, pod.name, wanted, pod.namespace, field_manager=FIELD_MANAGER, force=True
        )
