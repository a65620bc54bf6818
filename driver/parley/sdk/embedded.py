"""Calls a driver in this process, of the controller or of `parley driver run`: passes typed parameters, checks the
answers, contains exceptions.

The program calls the driver through this class alone. An exception of a driver concerns the claim or the pod of
the call: it is raised as a DriverFault, or, where no caller waits for an answer (`observe`, `restore`, `forget`,
`follow`), logged. Resources of a claim that the driver failed to restore are not allocated (`unrestored`).
"""

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from parley.api.models import ResourceClass
from parley.negotiation.answers import Answer
from parley.negotiation.preference import preference_of_classes, scores_by_room
from parley.negotiation.stranded import Cause
from parley.sdk.allocation_checks import as_recorded, check_allocations
from parley.sdk.checks import (
    DriverFault,
    check_answers,
    check_bool,
    check_capacity,
    check_observed,
    check_reserve,
    check_room,
    check_scores,
    check_stranded,
    check_units,
    check_uses,
    fault_text,
)
from parley.sdk.driver import Driver
from parley.sdk.guard import RAISED, Guard
from parley.sdk.parameters import ParameterReader, RawClaim
from parley.sdk.referenced import NO_REFERENCES, References
from parley.sdk.sight import SeenCluster, SeenPod
from parley.sdk.threads import from_any_thread
from parley.sdk.undos import Undos
from parley.sdk.unrestored import Unrestored
from parley.sdk.values import (
    Allocation,
    Capacity,
    ClaimRequest,
    ClassOnNodes,
    Held,
    PodReference,
    Request,
    Reserve,
    Stranded,
)

log = structlog.get_logger(__name__)


class EmbeddedDriver:
    """One driver in this process. `references` reads the objects that `parametersRef` names."""

    def __init__(self, driver: Driver[Any, Any], references: References = NO_REFERENCES) -> None:
        self.driver = driver
        self._reader = ParameterReader(driver, references)
        self.name = driver.name
        self.unrestored = Unrestored(driver.name)
        self._guard = Guard(driver.name, self._failed)
        self._undos = Undos(self._give_back, partial(self._failed, "deallocate"))
        self.revision = 0
        """Incremented by each call that may change what the driver has, or how much of it is free."""

    @property
    def has_preferences(self) -> bool:
        """Whether some nodes are better than others: the driver overrides `score` or `room_left`."""
        return type(self.driver).score is not Driver.score or self.reports_room

    @property
    def reports_room(self) -> bool:
        """Whether the room left on nodes decides: the driver overrides `room_left`, and not `score`."""
        kind = type(self.driver)
        return kind.room_left is not Driver.room_left and kind.score is Driver.score

    @property
    def is_saturated(self) -> bool:
        """Whether too many calls of the driver are in flight to start another one."""
        return False

    @property
    def sees_pods(self) -> bool:
        """Whether the driver's requests describe their pods (`Request.seen`)."""
        return self.driver.sees_pods

    @property
    def supports_preemption(self) -> bool:
        """Whether the driver overrides `viable_without`, so that pods may be evicted for its claims."""
        return type(self.driver).viable_without is not Driver.viable_without

    @property
    def is_node_local(self) -> bool:
        """Whether every deallocation changes the answers about its node alone."""
        return self.driver.node_local and type(self.driver).is_local is Driver.is_local

    def is_local(self, held: Held) -> bool:
        """Whether deallocating this changes the answers about its node alone; False if the driver fails."""
        try:
            return self.driver.is_local(held)
        except RAISED as error:
            self._failed("is_local", error)
            return False

    @property
    def distinguishes(self) -> bool:
        """Whether the driver overrides `alike`; otherwise equal classes and parameters get the same answers."""
        return type(self.driver).alike is not Driver.alike

    def alike(self, request: Request[Any, Any]) -> Hashable:
        """The driver's key of requests that get the same answers if their classes and parameters are equal, too.
        Raises DriverFault."""
        with self._guard.contained("alike"):
            key = self.driver.alike(request)
            hash(key)
        return key

    @property
    def decides_stranded(self) -> bool:
        """Whether the driver overrides `stranded`; otherwise pods wait for the claim's node."""
        return type(self.driver).stranded is not Driver.stranded

    @property
    def leaves_data(self) -> bool:
        """Whether nodes have data to remove when a claim ends."""
        return self.driver.leaves_data

    def see(self, cluster: SeenCluster) -> None:
        """Gives the driver its view of the cluster. Logs exceptions."""
        try:
            self.driver.see(cluster)
        except RAISED as error:
            self._failed("see", error)

    def users_changed(self, uid: str) -> None:
        """Tells the driver that the pods that use the claim have changed. Logs exceptions."""
        try:
            self.driver.users_changed(uid)
        except RAISED as error:
            self._failed("users_changed", error)

    def request(
        self, pod: PodReference, claims: Sequence[RawClaim], since: float = 0.0, seen: SeenPod | None = None
    ) -> Request[Any, Any]:
        """The typed request; it describes the pod (`seen`) if the driver `sees_pods`. Parameters in objects must
        have been read at the time `since` (the event loop's clock) or later.

        Raises BadParameters, with claim or class, field and value; ParametersUnavailable if such an object is not
        read yet.
        """
        with self._guard.contained("parameters"):
            prefer = preference_of_classes((claim.prefer for claim in claims), reports_room=self.reports_room)
            typed = tuple(self._reader.claim(claim, since) for claim in claims)
            return Request(pod, typed, prefer=prefer, seen=seen if self.driver.sees_pods else None)

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """The driver's answers by claim entry. Raises DriverFault if it fails or they break the contract."""
        excluded = self.unrestored.barred(nodes)
        asked = [node for node in nodes if node not in excluded]
        with self._guard.contained("viable"):
            answers = self.driver.viable(request, [*asked])  # a copy: the driver may change it
            check_answers(self.name, request, asked, answers)
        return self.unrestored.without_barred(answers, excluded)

    def viable_without(self, request: Request[Any, Any], node: str, uids: Collection[str]) -> bool:
        """Whether the node would be viable if the claims with these UIDs held nothing. Raises DriverFault."""
        if self.unrestored.barred([node]):
            return False
        with self._guard.contained("viable_without"):
            check_bool(self.name, "viable_without", viable := self.driver.viable_without(request, node, uids))
        return viable

    def stranded(self, claim: ClaimRequest[Any, Any], node: str, cause: Cause) -> Stranded:
        """How to treat a claim on a node that takes no pods. Raises DriverFault."""
        with self._guard.contained("stranded"):
            treatment = self.driver.stranded(claim, node, cause)
            check_stranded(self.name, treatment)
        return treatment

    async def consider(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """The same as `viable`, for an asynchronous driver."""
        excluded = self.unrestored.barred(nodes)
        asked = [node for node in nodes if node not in excluded]
        with self._guard.contained("consider"):
            answers = await self._guard.awaited("consider", self.driver.consider(request, [*asked]))
            check_answers(self.name, request, asked, answers)
        return self.unrestored.without_barred(answers, excluded)

    def has_room(self, request: Request[Any, Any], node: str) -> bool:
        """Whether the node may be viable for all of the request's claims; True if the driver fails."""
        try:
            return self.driver.has_room(request, node)
        except RAISED as error:
            self._failed("has_room", error)
            return True

    def has_room_anywhere(self, request: Request[Any, Any]) -> bool:
        """Whether any node may be viable for all of the request's claims; True if the driver fails."""
        try:
            return self.driver.has_room_anywhere(request)
        except RAISED as error:
            self._failed("has_room_anywhere", error)
            return True

    def score(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        """The driver's scores by node; with `room_left`, those that follow from the classes' `prefer`.

        Raises DriverFault if the driver fails, or a score is not between 0 and 1.
        """
        if self.reports_room:
            return scores_by_room(request.prefer, self.room_left(request, nodes))
        with self._guard.contained("score"):
            scores = self.driver.score(request, nodes)
            check_scores(self.name, scores)
        return scores

    def room_left(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        """The room left on each of the nodes. Raises DriverFault if the driver fails, or a value is below 0."""
        with self._guard.contained("room_left"):
            left = self.driver.room_left(request, nodes)
            check_room(self.name, left)
        return left

    def fullest(self, request: Request[Any, Any]) -> Iterable[str]:
        """The nodes with the least room first, if the claims are to be packed and the driver keeps an order.
        Iterating raises DriverFault if the driver fails."""
        if self.reports_room and request.prefer == "Pack":
            with self._guard.contained("fullest"):
                yield from self.driver.fullest(request)

    def units(self, claim: ClaimRequest[Any, Any]) -> int:
        """How much of a class's limit in units the claim uses. Raises DriverFault."""
        with self._guard.contained("units"):
            units = self.driver.units(claim)
            check_units(self.name, claim.name, units)
        return units

    @property
    def may_reserve(self) -> bool:
        """Whether claims of the driver may reserve room on their nodes."""
        return type(self.driver).reserves is not Driver.reserves

    def reserves(self, claim: ClaimRequest[Any, Any]) -> Reserve | None:
        """The room to reserve on the claim's node, None if none: a generated claim has no later users.

        Raises DriverFault.
        """
        if claim.generated or not self.may_reserve:
            return None
        with self._guard.contained("reserves"):
            reserve = self.driver.reserves(claim)
            check_reserve(self.name, claim.claim, reserve)
        return reserve if reserve is not None and reserve.thousandths() else None

    def uses(self, held: Held) -> Sequence[str]:
        """UIDs of the claims that an allocation needs. Raises DriverFault."""
        with self._guard.contained("uses"):
            uids = self.driver.uses(held)
            check_uses(self.name, uids)
        return tuple(uids)

    def capacity(self, class_: ResourceClass, nodes: Sequence[str]) -> Capacity | None:
        """How much the class has on these nodes; None if the driver does not know.

        Raises BadParameters if the driver does not understand the class's own parameters, ParametersUnavailable if
        the object that has them is not read yet, and DriverFault.
        """
        name = class_.metadata.name
        with self._guard.contained("capacity"):
            typed = self._reader.class_(name, class_.parameters, class_.parameters_ref, 0.0)
            capacity = self.driver.capacity(ClassOnNodes(name, typed, nodes))
            check_capacity(self.name, capacity)
        return capacity

    def _failed(self, call: str, error: BaseException) -> None:
        """Logs that the driver broke its contract, with the stack, which its author needs."""
        log.error("driver failed", driver=self.name, call=call, error=fault_text(error), exc_info=error)

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        """Allocates all claims of the request. Raises the driver's exceptions and DriverFault; then nothing is
        held."""
        if reasons := self.unrestored.barred([node]):
            raise DriverFault(reasons[node])
        self.revision += 1
        for claim in request.claims:
            await self._undos.finish(claim.uid)
        uids = [claim.uid for claim in request.claims]
        try:
            with self._guard.uncancelled():
                call: Any = self.driver.allocate(request, node)
                allocations = await call if isinstance(call, Awaitable) else {}
        except Exception:
            await self.undo(uids)  # the call may have held something when it failed
            raise
        finally:
            self.revision += 1
        try:
            self._guard.check_async("allocate", call)
            if self.may_reserve:
                allocations = self._with_reserves(request, allocations)
            check_allocations(self.name, request, allocations, leaves_data=self.leaves_data)
            self.unrestored.check_devices(allocations)
            allocations = as_recorded(request, allocations)
        except Exception as error:
            self._failed("allocate", error)
            await self.undo(uids)
            raise
        return allocations

    def _with_reserves(
        self, request: Request[Any, Any], allocations: Mapping[str, Allocation]
    ) -> Mapping[str, Allocation]:
        reserves = {claim.name: self.reserves(claim) for claim in request.claims}
        return {name: replace(each, reserve=reserves.get(name)) for name, each in allocations.items()}

    async def undo(self, uids: Sequence[str]) -> None:
        """Deallocates claims whose allocations are recorded nowhere. Failed calls are repeated by `retry_undos` or
        before the claim is allocated again."""
        await self._undos.undo(uids)

    async def retry_undos(self, changed: Callable[[], None]) -> None:
        """Repeats the failed deallocations of `undo` with back-off, until cancelled."""
        await self._undos.run(changed)

    async def deallocate(self, uid: str) -> None:
        """Deallocates the claim. Raises DriverFault if the driver fails: the claim may hold resources then."""
        try:
            await self._give_back(uid)
        except DriverFault:
            raise
        except Exception as error:
            raise DriverFault(f"driver {self.name} failed in deallocate: {fault_text(error)}") from error
        self.revision += 1
        self._undos.forget(uid)
        self.unrestored.remove(uid)

    async def _give_back(self, uid: str) -> None:
        self.revision += 1
        with self._guard.uncancelled():
            await self._guard.awaited("deallocate", self.driver.deallocate(uid))

    def restore(self, held: Held, claim: str = "", *, local: bool = True) -> None:
        """Restores an allocation in the API, that of `claim` (namespace/name). `local`: it can be used on its node
        alone."""
        self.revision += 1
        try:
            self.driver.restore(held)
        except RAISED as error:
            self._failed("restore", error)
            self.unrestored.add(held, claim or held.uid, error, local=local)
        else:
            self.unrestored.remove(held.uid)

    def forget(self, uid: str) -> None:
        """Tells the driver that an allocation of ordinary DRA is gone. If it fails, the devices stay in use."""
        self.unrestored.remove(uid)
        self.revision += 1
        try:
            self.driver.forget(uid)
        except RAISED as error:
            self._failed("forget", error)

    def observe(self, old: Any | None, new: Any | None) -> bool | Collection[str]:
        """Passes a change of a watched object to the driver. Returns whether waiting pods may now succeed, or on
        which nodes; True if the driver fails."""
        self.revision += 1
        try:
            result = self.driver.observe(old, new)
            check_observed(self.name, result)
        except RAISED as error:
            self._failed("observe", error)
            return True
        return result

    async def follow(self, changed: Callable[[], None]) -> None:
        """Runs the driver's `follow`, again after a pause if it fails."""

        def on_change() -> None:
            self.revision += 1
            changed()

        follow = partial(self.driver.follow, from_any_thread(on_change))
        await self._guard.repeated("follow", follow, on_change)
