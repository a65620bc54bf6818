"""Drivers that the controller has in some worlds, each with one ability more than `CountedDriver`, and the driver
that has all abilities of a plan."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.soak.drivers.counted import AnnouncingDriver, CountedDriver, TardyDriver
from tests.soak.drivers.misbehaving import MisbehavingDriver
from tests.soak.kinds.classes import ZONAL
from tests.soak.kinds.names import ZONE, ZONE_OF
from tests.soak.plan import Plan
from tests.soak.rules.reservations import reserve
from tests.soak.rules.views import SOURCE, VIEW

from parley.api.models import Hold
from parley.drivers.tokens import TokensDriver
from parley.sdk import Allocation, Answer, Held, NodeLabels, Reserve, Stranded


class ZonedTokens(TokensDriver):
    """The tokens driver, with a class whose tokens can be used in one zone."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = dict(await super().allocate(request, node))
        for claim in request.claims:
            if claim.class_name == ZONAL:
                zone = NodeLabels({ZONE: ZONE_OF[node]})
                found[claim.name] = replace(found[claim.name], available_on=zone)
        return found


class NodeDataDriver(CountedDriver):
    """Pods with named claims leave data on their node, under another name for each allocation."""

    leaves_data = True

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = await super().allocate(request, node)
        names = {name: {"folder": f"{self._chance.getrandbits(64):x}"} for name in found}
        return {name: replace(one, data={**one.data, **names[name]}) for name, one in found.items()}


STRANDED: Mapping[str, Stranded] = {
    "disk": Stranded("Fail", 30),
    "common": Stranded("Fail", 10),
    "workspace": Stranded("Fail"),
    "cache": Stranded("Recreate", 15),
    "standing": Stranded("Recreate"),
    "standing-shared": Stranded("Recreate", 40),
    "run-1": Stranded("Recreate"),
}
"""What becomes of named claims whose node takes no pods, as `StrandedClaimsDriver` decides."""


def starting_over(plan: Plan) -> frozenset[str]:
    """The claims that a driver with the abilities of the plan lets start over."""
    recreated = (name for name, decision in STRANDED.items() if decision.way == "Recreate")
    return frozenset(recreated if plan.stranded_claims else ())


class ReservingDriver(CountedDriver):
    """Named claims reserve room on their node."""

    hold: Hold = "Ledger"
    yields_to: tuple[str, ...] = ()

    def reserves(self, claim: Any) -> Reserve | None:
        found = reserve(claim.claim, self.hold)
        return replace(found, yields_to=self.yields_to) if found is not None else None


class NominatingDriver(ReservingDriver):
    """Reservation pods hold that room."""

    hold: Hold = "Nominated"


class StrandedClaimsDriver(CountedDriver):
    """Some claims whose node takes no pods fail after a while, or start over (`STRANDED`)."""

    def stranded(self, claim: Any, node: str, cause: Any) -> Stranded:
        return STRANDED.get(claim.claim, Stranded())


class ViewingDriver(CountedDriver):
    """Views need the claim `SOURCE` to be allocated."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._shown: dict[str, None] = {}
        self._changed: Callable[[], None] | None = None

    async def follow(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        await asyncio.Event().wait()

    def viable(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        if self._lacks(request):
            return {c.name: Answer((), (), dict.fromkeys(nodes, "nothing to show")) for c in request.claims}
        return super().viable(request, nodes)

    def has_room(self, request: Any, node: str) -> bool:
        return not self._lacks(request) and super().has_room(request, node)

    def _lacks(self, request: Any) -> bool:
        wants = any(claim.class_name == VIEW for claim in request.claims)
        return wants and not self._shown and not any(map(_is_source, request.claims))

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        if self._lacks(request):
            raise RuntimeError("nothing to show")
        source = next((claim.uid for claim in request.claims if _is_source(claim)), None)
        source = source or next(reversed(self._shown), "")
        found = dict(await super().allocate(request, node))
        for claim in request.claims:
            more = {"shown": True} if _is_source(claim) else {"uses": source} if claim.class_name == VIEW else {}
            found[claim.name] = replace(found[claim.name], data={**found[claim.name].data, **more})
            if _is_source(claim):
                self._show(claim.uid)
        return found

    def restore(self, held: Held) -> None:
        super().restore(held)
        if (held.data or {}).get("shown"):
            self._show(held.uid)

    def _show(self, uid: str) -> None:
        self._shown[uid] = None
        if self._changed is not None:
            self._changed()

    async def deallocate(self, uid: str) -> None:
        self._shown.pop(uid, None)
        await super().deallocate(uid)

    def uses(self, held: Held) -> Sequence[str]:
        return [held.data["uses"]] if held.data and "uses" in held.data else []


def _is_source(claim: Any) -> bool:
    return claim.claim == SOURCE and not claim.generated


def driver_kind(plan: Plan) -> type[CountedDriver]:
    """The class of a driver that has all abilities of the plan."""
    kinds: dict[type[Any], bool] = {
        MisbehavingDriver: plan.misbehaving_driver,
        NodeDataDriver: plan.node_data,
        ReservingDriver: plan.reserved_room == "Ledger",
        NominatingDriver: plan.reserved_room == "Nominated",
        ViewingDriver: plan.views,
        StrandedClaimsDriver: plan.stranded_claims,
        TardyDriver: plan.full_nodes,
    }
    wanted = [kind for kind, is_wanted in kinds.items() if is_wanted]
    return type("PlannedDriver", (AnnouncingDriver, *wanted, CountedDriver), {})
