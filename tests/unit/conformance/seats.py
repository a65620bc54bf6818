"""A small driver of seats that speaks docs/driver-protocol.md, and can be told to break one rule of it.

Level-triggered: it lists everything, does what is to be done, and sleeps for a moment. `broken` is the name of the
check that is to fail, "no-capacity" (which breaks no rule), or "".
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from tests.unit.conformance import seats_objects as objects
from tests.unit.conformance.seats_objects import (
    NAME,
    Object,
    WrongParameters,
    allocation_of,
    entries_of,
    is_anothers,
    seats,
)

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, CLASSES, NODES, POD_SCHEDULINGS
from parley.api.selectors import node_selector
from parley.kube.client import ApiError, Client

FINALIZER = driver_finalizer(NAME)
CLEARED = {"driverName": None, "allocation": None, "deallocationRequested": None}


class Seats:
    """The driver, in this process."""

    def __init__(self, client: Client, broken: str = "") -> None:
        self._client = client
        self._broken = broken
        self._task: asyncio.Task[None] | None = None
        self._starts = 0
        self._held_for_nothing: Counter[tuple[str, str]] = Counter()
        """By namespace and node; outside of the process."""
        self._forget()

    def _forget(self) -> None:
        self._leaked: Counter[str] = Counter()
        self._seen: dict[str, str] = {}
        self._asked_back: set[str] = set()
        self._given_up: set[str] = set()
        self._dead, self._is_new = False, True

    def breaks(self, check: str) -> bool:
        return self._broken == check

    def _breaks_there(self, check: str, of: Object) -> bool:
        """Whether it breaks the rule in the namespace of its check."""
        return self.breaks(check) and of["metadata"]["namespace"] == f"conformance-{check}"

    def _leak(self, check: str, of: Object, node: str) -> None:
        self._held_for_nothing[of["metadata"]["namespace"], node] += self._breaks_there(check, of)

    async def start(self) -> None:
        self._forget()
        self._starts += 1
        self._task = asyncio.create_task(self._run())

    async def kill(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def ended(self) -> None:
        assert self._task is not None
        await self._task

    async def _run(self) -> None:
        while not self._dead:
            try:
                await self._look_at_all()
            except ApiError:
                pass  # it looks again
            await asyncio.sleep(0.2)

    async def _look_at_all(self) -> None:
        self.classes = await self._all(CLASSES)
        self.claims = await self._all(CLAIMS)
        self.counted = deepcopy(self.claims) if self.breaks("two-at-once") else self.claims
        self.questions = await self._all(POD_SCHEDULINGS)
        self.nodes = await self._all(NODES)
        takes_over = self._is_new and not self.breaks("restart-takes-over")
        for claim in objects.begun(self.claims, FINALIZER) if takes_over else ():
            await self._write(claim, {"metadata": {"annotations": {f"{NAME}/allocating-on": str(self._starts)}}})
        self._is_new = False
        for claim in list(self.claims.values()):
            await self._each(self._claim(claim))
        for question in list(self.questions.values()):
            await self._each(self._question(question))

    async def _each(self, work: Any) -> None:
        """One object that is refused keeps no other waiting."""
        try:
            await work
        except ApiError:
            pass

    async def _all(self, resource: Any) -> dict[str, Object]:
        items = (await self._client.list(resource.untyped())).items
        return {f"{i['metadata'].get('namespace', '')}/{i['metadata']['name']}": i for i in items}

    # What is held

    def _mine(self, claim: Object) -> bool:
        class_ = self.classes.get(f"/{claim['spec']['resourceClassName']}")
        return class_ is not None and (class_["driverName"] == NAME or self.breaks("others-claims"))

    def _used(self, node: str) -> int:
        total = self._leaked[node]
        for claim in self.counted.values():
            for handle in allocation_of(claim).get("handles") or ():
                forgets = self.breaks("restart-holds") and self._starts > 1
                if handle["driverName"] == NAME and handle["data"]["node"] == node and not forgets:
                    total += handle["data"]["seats"]
        return total

    def _free(self, claims: Sequence[Object], node: str) -> int:
        class_ = self.classes[f"/{claims[0]['spec']['resourceClassName']}"]
        place = claims[0]["metadata"]["namespace"]
        others = self._used("node-2") if self._breaks_there("capacity-of-all", claims[0]) else 0
        lost = self._held_for_nothing[place, node] + (others if node == "node-1" else 0)
        return int(class_["parameters"]["seats"]) - self._used(node) - lost

    # Claims

    async def _claim(self, claim: Object) -> None:
        if not self._mine(claim):
            return
        meta, status = claim["metadata"], claim.get("status") or {}
        in_use = bool(status.get("reservedFor")) and not self.breaks("deleted-in-use")
        deleted = bool(meta.get("deletionTimestamp")) and not in_use and not self.breaks("deleted")
        deleted = deleted and not (self.breaks("abort-deleted") and not allocation_of(claim))
        asked_back = bool(status.get("deallocationRequested")) and not self.breaks("deallocates")
        if self.breaks("restart-catches-up") and self._starts > 1 and asked_back:
            asked_back = meta["uid"] in self._asked_back  # an edge that it missed
        if not status.get("deallocationRequested"):
            self._asked_back.add(meta["uid"])
        if is_anothers(claim):
            if FINALIZER in meta.get("finalizers", ()) and not self.breaks("allocation-of-another"):
                await self._remove_finalizer(claim)
            return
        unasked = self.breaks("allocation-stays") and allocation_of(claim) and not self._named(claim)
        if FINALIZER in meta.get("finalizers", ()) and (deleted or asked_back or unasked or self._idle(claim)):
            await self._take_back(claim)
        elif claim["spec"].get("allocationMode") == "Immediate" and not allocation_of(claim):
            await self._immediate(claim)
        elif self.breaks("repetition") and allocation_of(claim):
            self._leak_when_touched(claim)

    def _leak_when_touched(self, claim: Object) -> None:
        touched = (claim["metadata"].get("annotations") or {}).get("conformance.parley.dev/touched", "")
        if touched != self._seen.get(claim["metadata"]["uid"], ""):
            self._seen[claim["metadata"]["uid"]] = touched
            self._leaked[allocation_of(claim)["handles"][0]["data"]["node"]] += 1

    def _idle(self, claim: Object) -> bool:
        """No allocation, and no pod is about to get one."""
        if allocation_of(claim) or (self.breaks("restart-leftovers") and self._starts > 1):
            return False
        return not any(self._selected(question, claim) for question in self.questions.values())

    def _named(self, claim: Object) -> bool:
        place, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        asked = [q for q in self.questions.values() if q["metadata"]["namespace"] == place]
        return any(e["resourceClaimName"] == name for q in asked for e in q["spec"].get("claims", ()))

    def _selected(self, question: Object, claim: Object) -> bool:
        same = question["metadata"]["namespace"] == claim["metadata"]["namespace"]
        named = any(
            e["resourceClaimName"] == claim["metadata"]["name"]
            and (e["driverName"] == NAME or self.breaks("abort-withdrawn"))
            for e in question["spec"].get("claims", ())
        )
        return same and named and bool(question["spec"].get("selectedNode"))

    async def _take_back(self, claim: Object) -> None:
        if allocation_of(claim) and not (claim["status"].get("reservedFor") and self.breaks("deleted-in-use")):
            if self.breaks("deallocated-in-one-write"):
                await self._write(claim, {"status": {"allocation": None, "deallocationRequested": None}}, "status")
            await self._write(claim, {"status": CLEARED}, "status")
        if not self.breaks("finalizer-removed"):
            await self._remove_finalizer(claim)

    async def _remove_finalizer(self, claim: Object) -> None:
        left = [f for f in claim["metadata"].get("finalizers", ()) if f != FINALIZER]
        await self._write(claim, {"metadata": {"finalizers": left}})

    async def _immediate(self, claim: Object) -> None:
        if self.breaks("immediate"):
            return
        class_ = self.classes[f"/{claim['spec']['resourceClassName']}"]
        conditions = claim.get("status", {}).get("conditions", ())
        accepted = any((one["type"], one["status"]) == ("Accepted", "True") for one in conditions)
        if class_.get("limits") and not accepted and not self.breaks("immediate-accepted"):
            return
        for node in self.nodes.values():
            name, spec = node["metadata"]["name"], node.get("spec", {})
            tainted = bool(spec.get("taints")) or bool(spec.get("unschedulable"))
            suits = objects.is_suitable(class_, name) or self.breaks("immediate-suitable")
            if suits and (not tainted or self.breaks("immediate-tainted")) and self._free([claim], name) > 0:
                await self._hold(claim, name)
                return

    # Questions

    async def _question(self, question: Object) -> None:
        labels = question["metadata"].get("labels") or {}
        spec = question["spec"]
        entries = [entry for entry in spec.get("claims", ()) if entry["driverName"] == NAME]
        if not entries or labels.get("parley.dev/drivers") != "standalone":
            return
        place = question["metadata"]["namespace"]
        found = [self.claims.get(f"{place}/{entry['resourceClaimName']}") for entry in entries]
        claims = [claim for claim in found if claim is not None]
        deleted = any(claim["metadata"].get("deletionTimestamp") for claim in claims)
        if len(claims) < len(entries) or (deleted and not self.breaks("abort-deleted")):
            return
        if spec.get("selectedNode"):
            await self._allocate(question, claims)
        else:
            await self._answer(question, claims, None)

    def _judged(self, question: Object, claims: Sequence[Object]) -> Object:
        """What the entries of all claims have in common."""
        wanted, wrong = 0, ""
        for claim in claims:
            try:
                wanted += seats(claim, reads=self.breaks("parameters-ref"))
            except WrongParameters as error:
                wrong = str(error)
        if wrong:
            if self.breaks("hostile-parameters") and "number" in wrong and len(wrong) > 120:
                self._dead = True
            refused: Object = {"viableNodes": [], "alternatives": {"nodes": []}, "reason": wrong}
            return refused if self.breaks("bad-parameters") else {**refused, "waitingFor": "ParametersInvalid"}
        if self.breaks("together"):
            wanted = 1
        pending = [claim for claim in claims if not allocation_of(claim)] or claims
        nodes = question["spec"].get("candidateNodes", ())
        viable = [node for node in nodes if self._free(pending, node) >= wanted]
        judged: Object = {"viableNodes": viable, "reason": "" if viable else "no free seat"}
        if viable and wanted and not self.breaks("no-capacity"):
            full = 2 if self.breaks("capacity") else 1
            judged["capacity"] = {node: full * (self._free(pending, node) // wanted) for node in viable}
        return judged

    async def _answer(self, question: Object, claims: Sequence[Object], failure: Object | None) -> None:
        judged = self._judged(question, claims)
        before = [e for e in entries_of(question) if e["driverName"] == NAME]
        if self._is_silent(judged, before, question):
            return
        round_ = question["spec"]["round"]
        common = {"driverName": NAME, "round": 0 if self.breaks("answers") else round_, **judged}
        if failure is not None:
            common["failure"] = failure
        answers = [{"name": claim["metadata"]["name"], **common} for claim in claims]
        if self.breaks("every-claim"):
            answers = answers[:1]
        answers += self._entries_of_others(question)
        if answers != before:
            await self._apply(question, answers)

    def _is_silent(self, judged: Object, before: Sequence[Object], question: Object) -> bool:
        """The ways to break a rule by saying nothing."""
        asked_to_fail = bool(question["spec"].get("selectedNode"))
        old = bool(before) and before[0]["round"] == question["spec"]["round"]
        return (
            (self.breaks("empty-list") and not judged["viableNodes"] and "is no number" not in judged["reason"])
            or (self.breaks("up-to-date") and old and not asked_to_fail)
            or (self.breaks("next-round") and bool(before) and not old and "failure" not in before[0])
        )

    def _entries_of_others(self, question: Object) -> list[Object]:
        if not self.breaks("own-entries"):
            return []
        others = [e for e in question["spec"]["claims"] if e["driverName"] != NAME]
        return [
            {
                "name": e["name"],
                "driverName": e["driverName"],
                "round": question["spec"]["round"],
                "viableNodes": [],
            }
            for e in others
        ]

    async def _apply(self, question: Object, answers: Sequence[Object]) -> None:
        meta = question["metadata"]
        about = {"name": meta["name"]} | ({} if self.breaks("answers-with-uid") else {"uid": meta["uid"]})
        body = {"metadata": about, "status": {"claims": answers}}
        manager = "somebody" if self.breaks("answers-applied") else NAME
        await self._client.apply(
            POD_SCHEDULINGS, meta["name"], body, meta["namespace"], field_manager=manager, force=True
        )

    async def _allocate(self, question: Object, claims: Sequence[Object]) -> None:
        node, round_ = question["spec"]["selectedNode"], question["spec"]["round"]
        pending = [claim for claim in claims if not allocation_of(claim)]
        failed = any(
            (e.get("failure") or {}).get("nodeName") == node and e["round"] == round_ for e in entries_of(question)
        )
        if not pending or (failed and not self.breaks("failure-stays")) or self._ignores(question, pending):
            return
        free, wanted = self._free(pending, node), sum(map(seats, pending))
        if self.breaks("all-or-none") and 0 < free < wanted:
            await self._hold(pending[0], node)
        elif free < wanted:
            self._leak("failed-holds-nothing", question, node)
            self._given_up |= {question["metadata"]["uid"]} if self.breaks("selected-again") else set()
            if not self.breaks("failure"):
                failure = {"nodeName": node, "message": "no free seat", "permanent": False}
                await self._answer(question, claims, failure)
        else:
            if self._breaks_there("restart-moves", question) and self._starts > 1:
                node = question["spec"]["candidateNodes"][0]
            for claim in pending:
                await self._persist(question, claim, node)

    def _ignores(self, question: Object, pending: Sequence[Object]) -> bool:
        """The ways to break a rule by doing nothing."""
        begun = any(FINALIZER in claim["metadata"].get("finalizers", ()) for claim in pending)
        if self.breaks("allocates"):
            return True
        if self.breaks("selected-at-once") and not objects.was_answered(question):
            return True
        return question["metadata"]["uid"] in self._given_up or (
            self.breaks("restart-goes-on") and self._starts > 1 and begun
        )

    async def _persist(self, question: Object, claim: Object, node: str) -> None:
        """Hold it; who breaks a rule about aborting does so until the API server takes it."""
        while True:
            try:
                return await self._hold(claim, node)
            except ApiError:
                self._leak("aborted-holds-nothing", claim, node)
                self._leak("restart-holds-nothing", claim, node)
                if self.breaks("goes-on"):
                    self._given_up.add(question["metadata"]["uid"])
                if not await self._goes_on_regardless(question):
                    raise
            await asyncio.sleep(0.2)

    async def _goes_on_regardless(self, question: Object) -> bool:
        meta = question["metadata"]
        try:
            now = await self._client.get(POD_SCHEDULINGS.untyped(), meta["name"], meta["namespace"])
        except ApiError:
            return self.breaks("abort-gone")
        selected, before = now["spec"].get("selectedNode"), question["spec"]["selectedNode"]
        if not any(entry["driverName"] == NAME for entry in now["spec"].get("claims", ())):
            return self.breaks("abort-withdrawn")
        if selected == before:
            aborts = ("abort-deselected", "abort-moved", "abort-gone", "abort-withdrawn")
            return any(map(self.breaks, aborts))
        return self.breaks("abort-moved" if selected else "abort-deselected")

    # Writes

    async def _hold(self, claim: Object, node: str) -> None:
        if FINALIZER not in claim["metadata"].get("finalizers", ()) and not self.breaks("finalizer-first"):
            finalizers = [*claim["metadata"].get("finalizers", ()), FINALIZER]
            await self._write(claim, {"metadata": {"finalizers": finalizers}})
        if self.breaks("one-write"):
            await self._write(claim, {"status": {"driverName": NAME}}, "status")
        class_ = self.classes[f"/{claim['spec']['resourceClassName']}"]
        where = "elsewhere" if self.breaks("available-on-nodes") else node
        allocation = {
            "handles": [{"driverName": NAME, "data": {"node": node, "seats": seats(claim)}}],
            "availableOnNodes": node_selector([where]),
            "shareable": self.breaks("exclusive")
            or (bool(class_.get("shareable")) and not self.breaks("shareable")),
        }
        status: Object = {"driverName": NAME, "allocation": allocation}
        await self._write(claim, {"status": status | self._forgotten_conditions()}, "status")
        if self.breaks("finalizer-first"):
            finalizers = [*claim["metadata"].get("finalizers", ()), FINALIZER]
            await self._write(claim, {"metadata": {"finalizers": finalizers}})

    def _forgotten_conditions(self) -> Object:
        return {"conditions": []} if self.breaks("conditions") else {}

    async def _write(self, claim: Object, body: Object, subresource: str = "") -> None:
        """Refused if the claim changed; what is known of it is what was written."""
        meta = claim["metadata"]
        known = {} if self.breaks("resource-version") else {"resourceVersion": meta["resourceVersion"]}
        body = {**body, "metadata": {**known, **body.get("metadata", {})}}
        written = await self._client.patch(
            CLAIMS.untyped(), meta["name"], body, meta["namespace"], subresource=subresource
        )
        claim.clear()
        claim.update(written)
