"""Pods that want the same claims in any order: everybody runs once, each exclusive claim serves one at a time."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.trouble import Rates, TroubleClient
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.kube.client import Call, Client, Forbidden
from parley.kube.informer import Informer
from parley.simulate.admission import refusal
from parley.simulate.kubelet import RUN_SECONDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

T = TypeVar("T")
EXCLUSIVE = ("x", "y", "z")
SHARED = ("s", "t")
CLAIMS = EXCLUSIVE + SHARED


@dataclass(frozen=True)
class Wish:
    """A pod: the named claims it wants, in this order, how many of its own, when it comes, how long it runs."""

    claims: tuple[str, ...]
    own: int
    comes: int
    runs: int


wishes = st.builds(
    Wish,
    claims=st.lists(st.sampled_from(CLAIMS), unique=True, min_size=1, max_size=3).map(tuple),
    own=st.integers(0, 1),
    comes=st.integers(0, 8),
    runs=st.integers(1, 20),
)


class Runs:
    """What ran when, as the API shows it."""

    def __init__(self, world: World, claims_of: dict[str, tuple[str, ...]]) -> None:
        self.started: list[str] = []
        self.faults: list[str] = []
        self._claims_of = claims_of
        self._now: set[str] = set()
        self.task = asyncio.create_task(Informer(world.client, PODS, on_change=self._pod).run())

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        name = pod.metadata.name
        if new is None or new.status.phase != "Running":
            self._now.discard(name)
        elif name not in self._now:
            self.started.append(name)
            for other in self._now:
                if both := set(self._claims_of[name]) & set(self._claims_of[other]) & set(EXCLUSIVE):
                    self.faults.append(f"{name} and {other} use {both}")
            self._now.add(name)


async def add(world: World, name: str, wish: Wish) -> None:
    entries = [{"name": claim, "resourceClaimName": claim} for claim in wish.claims]
    entries += [{"name": f"own-{i}", "resourceClaimTemplateName": "shelf"} for i in range(wish.own)]
    meta = {"name": name, "namespace": "default", "annotations": {RUN_SECONDS: str(wish.runs)}}
    spec = {"resourceClaims": entries, "containers": [{"name": "main", "image": "none"}]}
    await world.create(PODS, {"metadata": meta, "spec": spec})


class GuardedClient(Client):
    """The admission policy for what Parley itself writes; the models of Kubernetes ask it before they write."""

    async def request(self, call: Call) -> bytes:
        users = (call.body or {}).get("status", {}).get("reservedFor")
        if call.resource == BUILTIN_CLAIMS and users:
            claim = await self.get(BUILTIN_CLAIMS, call.name, call.namespace)
            if why := refusal(claim, users, allocates=True):
                raise Forbidden(403, "Forbidden", why)
        return await super().request(call)


def takes_its_time(chance: random.Random) -> Callable[[str], Any]:
    async def wait(_: str) -> None:
        if chance.random() < 0.5:
            await asyncio.sleep(chance.uniform(0, 5))

    return wait


@example([Wish(("x", "y"), 0, 0, 5), Wish(("y", "x"), 0, 0, 5)], 1)
@example([Wish(("x", "y"), 1, 0, 5), Wish(("y", "z"), 1, 0, 5), Wish(("z", "x"), 1, 0, 5)], 2)
@example([Wish(("s", "x"), 0, 0, 9), Wish(("x", "s"), 0, 0, 9), Wish(("t", "s"), 1, 0, 9)], 3)
@example([Wish(("x",), 0, 0, 9), Wish(("x", "y"), 0, 1, 9), Wish(("y", "x"), 0, 1, 9), Wish(("y",), 0, 2, 9)], 4)
@given(st.lists(wishes, min_size=2, max_size=8), st.integers(0, 2**16))
@settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_everybody_runs_once(play: Callable[[Any], None], pods: list[Wish], seed: int) -> None:
    chance = random.Random(seed)

    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await add_shelf_class(world)
        await add_shelf_class(world, "shared", shareable=True)
        for claim in EXCLUSIVE:
            await world.add_claim(claim, "shelf")
        for claim in SHARED:
            await world.add_claim(claim, "shared")
        runs = Runs(world, {f"p{i}": wish.claims for i, wish in enumerate(pods)})
        behaviour = Behaviour(other=6, trouble=takes_its_time(chance))
        world.start_parley(
            TroubleClient(GuardedClient(world.server.client()), chance, Rates(slow=0.3, late=0.2, slow_seconds=2)),
            drivers=[ShelfDriver(behaviour)],
        )
        for second in range(9):
            for i, wish in enumerate(pods):
                if wish.comes == second:
                    await add(world, f"p{i}", wish)
            await asyncio.sleep(1)
        await world.settle(320)
        phases = {p.metadata.name: p.status.phase for p in (await world.client.list(PODS)).items}
        assert set(phases.values()) == {"Succeeded"}, phases
        assert runs.faults == []
        assert sorted(runs.started) == sorted(phases)
        for claim in CLAIMS:
            status = (await world.claim(claim)).status
            assert (status.allocation, status.reserved_for) == (None, ())
        assert world.controller is not None
        assert len(world.controller.ledger) == 0
        runs.task.cancel()

    play(scenario)
