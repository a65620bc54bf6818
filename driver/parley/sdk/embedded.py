"""Calls a driver in this process, of the controller or of `parley driver run`: typed parameters in, checked
answers out, exceptions contained.

The program calls the driver through this class alone. What a driver raises concerns the claim or the pod that it
was called for: it is raised as a DriverFault, or, where nobody waits for an answer (`observe`, `restore`,
`forget`, `follow`), logged. What a claim holds that the driver failed to restore is not handed out (`unrestored`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from parley.api.models import ResourceClass
from parley.kube.backoff import Backoff
from parley.negotiation.answers import Answer
from parley.negotiation.preference import preference_of_classes, scores_by_room
from parley.negotiation.stranded import Cause
from parley.sdk.allocation_checks import as_recorded, check_allocations
from parley.sdk.checks import (
    DriverFault,
    check_answers,
    check_capacity,
    check_observed,
    check_reserve,
    check_room,
    check_scores,
    check_stranded,
    check_truth,
    check_units,
    check_uses,
    fault_text,
)
from parley.sdk.driver import Driver
from parley.sdk.guard import RAISED, Guard
from parley.sdk.parameters import ParameterReader, RawClaim
from parley.sdk.referenced import NOTHING_READ, References
from parley.sdk.sight import SeenCluster, SeenPod
from parley.sdk.threads import from_any_thread
from parley.sdk.undos import Undos
from parley.sdk.unrestored import NotRestored, barred, check_devices, without_barred
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

_FOLLOW_AGAIN = Backoff(first=1.0, longest=300.0)

log = structlog.get_logger(__name__)


class EmbeddedDriver:
    """One driver in this process. `references` is what objects hold that `parametersRef` names."""

    def __init__(self, driver: Driver[Any, Any], references: References = NOTHING_READ) -> None:
        self.driver = driver
        self._reader = ParameterReader(driver, references)
        self.name = driver.name
        self.not_restored: dict[str, NotRestored] = {}
        """By the claim's UID; until the claim is released."""
        self._guard = Guard(driver.name, self._failed)
        self._undos = Undos(self._give_back, partial(self._failed, "deallocate"))
        self.revision = 0
        """Rises with all that may change what the driver has, or what of it is free."""

    @property
    def has_preferences(self) -> bool:
        """Whether some nodes are better than others: the driver has a `score`, or tells what is left."""
        return type(self.driver).score is not Driver.score or self.tells_room

    @property
    def tells_room(self) -> bool:
        """Whether nodes are preferred by what the driver has left there: it tells that, and has no `score`."""
        kind = type(self.driver)
        return kind.room_left is not Driver.room_left and kind.score is Driver.score

    @property
    def is_saturated(self) -> bool:
        """Whether so many calls of the driver are under way that no more should begin."""
        return False

    @property
    def sees_pods(self) -> bool:
        """Whether its requests say what their pods are like."""
        return self.driver.sees_pods

    @property
    def foresees(self) -> bool:
        """Whether the driver can tell what would be viable if other claims held nothing."""
        return type(self.driver).viable_without is not Driver.viable_without

    @property
    def is_node_local(self) -> bool:
        """Whether giving back anything, whatever it is, changes the answers about its node alone."""
        return self.driver.node_local and type(self.driver).is_local is Driver.is_local

    def is_local(self, held: Held) -> bool:
        """Whether giving this back changes the answers about its node alone; in doubt it does not."""
        try:
            return self.driver.is_local(held)
        except RAISED as error:
            self._failed("is_local", error)
            return False

    def alike(self, request: Request[Any, Any]) -> Hashable:
        """What requests with the same classes and parameters must have in common to be answered alike. Raises
        DriverFault."""
        with self._guard.contained("alike"):
            found = self.driver.alike(request)
            hash(found)
        return found

    @property
    def settles_stranded(self) -> bool:
        """Whether the driver has a say in what becomes of claims whose node takes no pods: else they wait."""
        return type(self.driver).stranded is not Driver.stranded

    @property
    def leaves_data(self) -> bool:
        """Whether nodes have something to remove when a claim ends."""
        return self.driver.leaves_data

    def see(self, cluster: SeenCluster) -> None:
        """Show the driver the cluster. What it raises is logged."""
        try:
            self.driver.see(cluster)
        except RAISED as error:
            self._failed("see", error)

    def users_changed(self, uid: str) -> None:
        """Tell the driver that other pods use what it allocated for that claim. What it raises is logged."""
        try:
            self.driver.users_changed(uid)
        except RAISED as error:
            self._failed("users_changed", error)

    def request(
        self, pod: PodReference, claims: Sequence[RawClaim], since: float = 0.0, seen: SeenPod | None = None
    ) -> Request[Any, Any]:
        """The typed request, with what is `seen` of the pod if the driver sees pods. Objects that hold parameters
        count as they were at the time `since` (the event loop's clock) or later.

        Raises BadParameters, with claim or class, field and value; NotRead if such an object is not read.
        """
        with self._guard.contained("parameters"):
            prefer = preference_of_classes((claim.prefer for claim in claims), reports_room=self.tells_room)
            typed = tuple(self._reader.claim(claim, since) for claim in claims)
            return Request(pod, typed, prefer=prefer, seen=seen if self.driver.sees_pods else None)

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """The driver's answers by claim entry. Raises DriverFault if it fails or they break the contract."""
        left_out = self._barred(nodes)
        asked = [node for node in nodes if node not in left_out]
        with self._guard.contained("viable"):
            answers = self.driver.viable(request, [*asked])  # which it may change
            check_answers(self.name, request, asked, answers)
        return without_barred(self.not_restored.values(), answers, left_out)

    def viable_without(self, request: Request[Any, Any], node: str, uids: Collection[str]) -> bool:
        """Whether the node would be viable for all of the request's claims without those. Raises DriverFault."""
        if self._barred([node]):
            return False
        with self._guard.contained("viable_without"):
            found = self.driver.viable_without(request, node, uids)
            check_truth(self.name, "viable_without", found)
        return found

    def stranded(self, claim: ClaimRequest[Any, Any], node: str, cause: Cause) -> Stranded:
        """What becomes of a claim on a node that takes no pods. Raises DriverFault."""
        with self._guard.contained("stranded"):
            found = self.driver.stranded(claim, node, cause)
            check_stranded(self.name, found)
        return found

    async def consider(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """As `viable`, of an asynchronous driver."""
        left_out = self._barred(nodes)
        asked = [node for node in nodes if node not in left_out]
        with self._guard.contained("consider"):
            answers = await self._guard.awaited("consider", self.driver.consider(request, [*asked]))
            check_answers(self.name, request, asked, answers)
        return without_barred(self.not_restored.values(), answers, left_out)

    def _barred(self, nodes: Sequence[str]) -> dict[str, str]:
        """Those of the nodes where nothing may be allocated, and why."""
        return barred(self.not_restored.values(), nodes)

    def has_room(self, request: Request[Any, Any], node: str) -> bool:
        """Whether the node may be viable for all of the request's claims; true if the driver fails over it."""
        try:
            return self.driver.has_room(request, node)
        except RAISED as error:
            self._failed("has_room", error)
            return True

    def has_room_anywhere(self, request: Request[Any, Any]) -> bool:
        """Whether any node may be viable for all of the request's claims; true if the driver fails over it."""
        try:
            return self.driver.has_room_anywhere(request)
        except RAISED as error:
            self._failed("has_room_anywhere", error)
            return True

    def score(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        """The driver's preferences, by node; those of the claims' classes, if the driver tells what is left.

        Raises DriverFault if it fails, or one is not between 0 and 1.
        """
        if self.tells_room:
            return scores_by_room(request.prefer, self.room_left(request, nodes))
        with self._guard.contained("score"):
            scores = self.driver.score(request, nodes)
            check_scores(self.name, scores)
        return scores

    def room_left(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        """What is left on each of the nodes. Raises DriverFault if the driver fails, or it is not 0 or more."""
        with self._guard.contained("room_left"):
            left = self.driver.room_left(request, nodes)
            check_room(self.name, left)
        return left

    def fullest(self, request: Request[Any, Any]) -> Iterable[str]:
        """The nodes to begin with, if the claims are to be packed and the driver keeps an order. Iterating raises
        DriverFault if it fails."""
        if self.tells_room and request.prefer == "Pack":
            with self._guard.contained("fullest"):
                yield from self.driver.fullest(request)

    def units(self, claim: ClaimRequest[Any, Any]) -> int:
        """How much of a class's limit in units the claim takes up. Raises DriverFault."""
        with self._guard.contained("units"):
            units = self.driver.units(claim)
            check_units(self.name, claim.name, units)
        return units

    @property
    def may_reserve(self) -> bool:
        """Whether claims of the driver may reserve room on their nodes."""
        return type(self.driver).reserves is not Driver.reserves

    def reserves(self, claim: ClaimRequest[Any, Any]) -> Reserve | None:
        """What the claim is to reserve on its node, None if nothing: one of a single pod has no later users.

        Raises DriverFault.
        """
        if claim.generated or not self.may_reserve:
            return None
        with self._guard.contained("reserves"):
            found = self.driver.reserves(claim)
            check_reserve(self.name, claim.claim, found)
        return found if found is not None and found.thousandths() else None

    def uses(self, held: Held) -> Sequence[str]:
        """UIDs of the claims that an allocation needs to be there. Raises DriverFault."""
        with self._guard.contained("uses"):
            found = self.driver.uses(held)
            check_uses(self.name, found)
        return tuple(found)

    def capacity(self, class_: ResourceClass, nodes: Sequence[str]) -> Capacity | None:
        """What the class has on these nodes, if the driver can tell.

        Raises BadParameters if it does not understand the class's own parameters, NotRead if the object that they
        are in is not known, and DriverFault.
        """
        name = class_.metadata.name
        with self._guard.contained("capacity"):
            typed = self._reader.class_(name, class_.parameters, class_.parameters_ref, 0.0)
            found = self.driver.capacity(ClassOnNodes(name, typed, nodes))
            check_capacity(self.name, found)
        return found

    def _failed(self, call: str, error: BaseException) -> None:
        """The driver broke its contract: whoever can mend it needs the stack."""
        log.error("driver failed", driver=self.name, call=call, error=fault_text(error), exc_info=error)

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        """Allocate all claims of the request. Raises what the driver raises, or DriverFault, with nothing held."""
        if reasons := self._barred([node]):
            raise DriverFault(reasons[node])
        self.revision += 1
        for claim in request.claims:
            await self._undos.finish(claim.uid)
        uids = [claim.uid for claim in request.claims]
        try:
            with self._guard.uncancelled():
                begun: Any = self.driver.allocate(request, node)
                allocations = await begun if isinstance(begun, Awaitable) else {}
        except Exception:
            await self.undo(uids)  # what it was cut off from may hold something
            raise
        finally:
            self.revision += 1
        try:
            self._guard.check_async("allocate", begun)
            if self.may_reserve:
                allocations = self._reserving(request, allocations)
            check_allocations(self.name, request, allocations, leaves_data=self.leaves_data)
            check_devices(self.not_restored.values(), allocations)
            allocations = as_recorded(request, allocations)
        except Exception as error:
            self._failed("allocate", error)
            await self.undo(uids)
            raise
        return allocations

    def _reserving(
        self, request: Request[Any, Any], allocations: Mapping[str, Allocation]
    ) -> Mapping[str, Allocation]:
        found = {claim.name: self.reserves(claim) for claim in request.claims}
        return {name: replace(one, reserve=found.get(name)) for name, one in allocations.items()}

    async def undo(self, uids: Sequence[str]) -> None:
        """Give back what was allocated for claims and is recorded nowhere. What fails is done later (`undo_rest`),
        or before the claim is allocated again."""
        await self._undos.undo(uids)

    async def undo_rest(self, changed: Callable[[], None]) -> None:
        """Give back after growing pauses what could not be given back at once, until cancelled."""
        await self._undos.run(changed)

    async def deallocate(self, uid: str) -> None:
        """Give back what the claim holds. Raises DriverFault if the driver fails; the claim may hold it still."""
        try:
            await self._give_back(uid)
        except DriverFault:
            raise
        except Exception as error:
            raise DriverFault(f"driver {self.name} failed in deallocate: {fault_text(error)}") from error
        self.revision += 1
        self._undos.forget(uid)
        self.not_restored.pop(uid, None)

    async def _give_back(self, uid: str) -> None:
        self.revision += 1
        with self._guard.uncancelled():
            await self._guard.awaited("deallocate", self.driver.deallocate(uid))

    def restore(self, held: Held, claim: str = "", *, local: bool = True) -> None:
        """Have the driver count an allocation in the API, that of `claim` (namespace/name). `local`: only its node
        can use it."""
        self.revision += 1
        try:
            self.driver.restore(held)
        except RAISED as error:
            self._failed("restore", error)
            message = (
                f"driver {self.name} could not restore what claim {claim or held.uid} holds "
                f"({fault_text(error)}), and leaves it alone until that claim is released"
            )
            self.not_restored[held.uid] = NotRestored(held, message, local)
        else:
            self.not_restored.pop(held.uid, None)

    def forget(self, uid: str) -> None:
        """Have the driver count a foreign allocation no more. If it fails, the devices stay in use for it."""
        self.not_restored.pop(uid, None)
        self.revision += 1
        try:
            self.driver.forget(uid)
        except RAISED as error:
            self._failed("forget", error)

    def observe(self, old: Any | None, new: Any | None) -> bool | Collection[str]:
        """Hand the driver a change of what it watches; whether waiting pods may succeed, or on which nodes. If it
        fails, they may anywhere."""
        self.revision += 1
        try:
            found = self.driver.observe(old, new)
            check_observed(self.name, found)
        except RAISED as error:
            self._failed("observe", error)
            return True
        return found

    async def follow(self, changed: Callable[[], None]) -> None:
        """Let the driver watch what is not in the API, again after a pause if it fails."""
        failures = 0

        def followed() -> None:
            self.revision += 1
            changed()

        while True:
            try:
                with self._guard.uncancelled():
                    await self._guard.awaited("follow", self.driver.follow(from_any_thread(followed)))
            except Exception as error:
                failures += 1
                self._failed("follow", error)
                await asyncio.sleep(_FOLLOW_AGAIN.delay(failures))
                changed()
            else:
                return
