"""A workspace that others show stays where it is as long as they do, whoever leads; views are where it is."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.kills import Death, Executioner, at_every_write
from tests.unit.scheduler.reserving import claim, disks

from parley.api import reasons
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS, CLASSES, NODES
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import Client, OutcomeUnknown
from parley.sdk import Held

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")

VIEW: Any = {"source": {"claim": "work"}, "mountPath": "/inputs"}


async def prepared(world: World, *, start: bool = True) -> None:
    """Nodes a, b and c; the class `workspace` keeps nothing."""
    await disks(world, "a", "b", "c")
    if start:
        world.start_parley(drivers=[WorkspaceDriver()])
    await world.client.patch(CLASSES, "workspace", {"whenUnused": None})
    await world.add_template("view", "workspace", **VIEW)
    await claim(world, "work")


async def runs(world: World, pod: str, *templates: str, claims: tuple[str, ...] = ()) -> str:
    """The node that it is bound to, "" if it is not."""
    await world.add_pod(pod, *templates, claims=claims)
    await world.settle()
    return await world.node_of(pod)


async def is_there(world: World, name: str = "work") -> bool:
    """Whether the claim is allocated."""
    return (await world.claim(name)).status.allocation is not None


async def needed(world: World) -> str:
    """Why the claim stays allocated without users, as it says itself."""
    conditions = (await world.claim("work")).status.conditions
    return "".join(condition.message for condition in conditions if condition.type == "Needed")


async def ended(world: World, *pods: str) -> None:
    for pod in pods:
        await world.finish_pod(pod)
    await world.settle()


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_what_is_shown_stays_until_the_last_view_ends(play: Play, restarted: bool) -> None:
    async def scenario(world: World) -> None:
        await prepared(world)
        node = await runs(world, "writer", claims=("work",))
        assert node
        assert [await runs(world, f"reader-{i}", "view") for i in range(2)] == [node, node]
        await ended(world, "writer", "reader-0")
        if restarted:
            await world.crash()
            world.start_parley(drivers=[WorkspaceDriver()])
            await world.settle()
        assert await is_there(world)
        assert (await world.claim("work")).status.reserved_for == ()
        (view,) = [one for one in await world.mirrors() if one.metadata.name.startswith("reader-1-")]
        assert await needed(world) == (
            "claims need what it has, and it stays allocated until they have ended: "
            f"default/{view.metadata.name} (used by reader-1)"
        )
        await ended(world, "reader-1")
        assert await needed(world) == ""
        assert not await is_there(world)
        assert len(world.ledger) == 0

    play(scenario)


def test_nothing_shows_a_claim_of_another_pod_whose_record_is_missing(play: Play) -> None:
    """Otherwise the next leader could allocate the claim elsewhere, while a view of it is in use."""

    async def scenario(world: World) -> None:
        await prepared(world, start=False)
        broken = True

        def refuse(call: NumberedCall) -> None:
            status = call.body.get("status", {}) if isinstance(call.body, dict) else {}
            if broken and call.resource == CLAIMS and "allocation" in status:
                raise OutcomeUnknown("no answer")

        world.start_parley(FaultClient(world.server.client(), before=refuse), drivers=[WorkspaceDriver()])
        for pod, claims, templates in ("writer", ("work",), ()), ("reader", (), ("view",)):
            await world.add_pod(pod, *templates, claims=claims)
            await asyncio.sleep(30)
        assert not await is_there(world)
        assert await world.node_of("reader") == ""
        broken = False
        await world.settle(600)
        assert await is_there(world)
        assert await world.node_of("reader") == await world.node_of("writer") != ""

    play(scenario)


def test_no_immediate_claim_does_either(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepared(world, start=False)
        broken = True

        def refuse(call: NumberedCall) -> None:
            status = call.body.get("status", {}) if isinstance(call.body, dict) else {}
            if broken and (call.resource, call.name) == (CLAIMS, "work") and "allocation" in status:
                raise OutcomeUnknown("no answer")

        world.start_parley(FaultClient(world.server.client(), before=refuse), drivers=[WorkspaceDriver()])
        await world.add_claim("inputs", "workspace", mode="Immediate", **VIEW)
        await world.add_pod("writer", claims=("work",))
        await asyncio.sleep(30)
        assert [await is_there(world), await is_there(world, "inputs")] == [False, False]
        broken = False
        await world.settle(600)
        assert [await is_there(world), await is_there(world, "inputs")] == [True, True]

    play(scenario)


def test_a_claim_that_is_deleted_goes_after_its_views(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepared(world)
        await runs(world, "writer", claims=("work",))
        await runs(world, "reader", "view")
        await ended(world, "writer")
        await world.client.delete(CLAIMS, "work", "default")
        await world.settle()
        assert await is_there(world)
        assert "(used by reader)" in await needed(world)
        await ended(world, "reader")
        await world.settle()
        assert "work" not in [one.metadata.name for one in (await world.client.list(CLAIMS)).items]
        assert len(world.ledger) == 0

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_a_deadline_that_its_class_has_no_more_does_not_count_after_its_views(play: Play, restarted: bool) -> None:
    async def scenario(world: World) -> None:
        await prepared(world)
        await world.client.patch(CLASSES, "workspace", {"whenUnused": {"keepSeconds": 3600}})
        await runs(world, "first", claims=("work",))
        await ended(world, "first")
        assert (await world.claim("work")).status.kept_until
        await world.client.patch(CLASSES, "workspace", {"whenUnused": None})
        await runs(world, "second", claims=("work",))
        await runs(world, "reader", "view")
        await ended(world, "second")
        assert (await world.claim("work")).status.kept_until is None
        if restarted:
            await world.crash()
            world.start_parley(drivers=[WorkspaceDriver()])
            await world.settle()
        await ended(world, "reader")
        assert not await is_there(world)
        assert len(world.ledger) == 0

    play(scenario)


def test_its_built_in_claim_may_be_made_anew_while_only_views_need_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepared(world)
        node = await runs(world, "writer", claims=("work",))
        await runs(world, "reader", "view")
        await ended(world, "writer")
        await world.client.delete(BUILTIN_CLAIMS, "work", "default")
        await world.settle()
        assert await runs(world, "second", claims=("work",)) == node
        assert (await world.pod("second")).status.phase == "Running"
        await ended(world, "second", "reader")
        assert len(world.ledger) == 0

    play(scenario)


@pytest.mark.parametrize("first", ["reader", "second"])
def test_one_that_was_forced_away_ends_with_its_views_though_another_has_its_name(play: Play, first: str) -> None:
    async def scenario(world: World) -> None:
        await prepared(world)
        await runs(world, "writer", claims=("work",))
        await runs(world, "reader", "view")
        await ended(world, "writer")
        await world.client.patch(CLAIMS, "work", {"metadata": {"finalizers": None}}, "default")
        await world.client.delete(CLAIMS, "work", "default")
        await world.settle()
        await claim(world, "work")
        assert await runs(world, "second", claims=("work",))
        assert len(world.ledger) == 3
        await ended(world, first)
        assert len(world.ledger) == (1 if first == "reader" else 2)
        await ended(world, "second" if first == "reader" else "reader")
        assert len(world.ledger) == 0

    play(scenario)


def test_a_pod_with_a_view_waits_for_what_it_shows_and_goes_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepared(world)
        await world.add_claim("inputs", "workspace", **VIEW)
        assert [await runs(world, "reader", "view"), await runs(world, "other", claims=("inputs",))] == ["", ""]
        status = (await world.scheduling("reader")).status
        assert status.waiting_for == reasons.NOTHING_VIABLE
        assert "claim work, the source, has no workspace yet" in status.message
        node = await runs(world, "writer", claims=("work",))
        assert node
        await asyncio.sleep(10)
        assert {await world.node_of("reader"), await world.node_of("other")} == {node}
        assert await is_there(world, "inputs")

    play(scenario)


def test_one_pod_may_be_the_first_of_both(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepared(world)
        assert await runs(world, "alone", "view", claims=("work",))
        await ended(world, "alone")
        assert not await is_there(world)
        assert len(world.ledger) == 0

    play(scenario)


def test_a_view_that_is_kept_keeps_what_it_shows(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepared(world)
        lasting = {"driverName": WorkspaceDriver.name, "shareable": True, "whenUnused": {"keepSeconds": 600}}
        await world.create(CLASSES, {"metadata": {"name": "lasting"}, **lasting})
        await world.add_claim("inputs", "lasting", **VIEW)
        await runs(world, "writer", claims=("work",))
        await runs(world, "reader", claims=("inputs",))
        await ended(world, "writer", "reader")
        await asyncio.sleep(500)
        assert await is_there(world)
        await world.settle(200)
        assert not await is_there(world, "inputs")
        assert not await is_there(world)

    play(scenario)


class Astray(WorkspaceDriver):
    """Says of views what the test wants."""

    def __init__(self, uses: Any) -> None:
        super().__init__()
        self._uses = uses

    def uses(self, held: Held) -> Sequence[str]:
        found: Sequence[str] = self._uses(held.uid) if super().uses(held) else ()
        return found


@pytest.mark.parametrize(
    ("uses", "words"),
    [
        (lambda own: "work", "says that a claim uses 'work'; it must be at most 32 UIDs"),
        (
            lambda own: [own],
            "lets claim default/inputs use claim default/inputs: it has to be one of its own named claims",
        ),
        (
            lambda own: ["elsewhere"],
            "claim default/inputs needs the claim with UID elsewhere, which is being released: it is tried again "
            "after that",
        ),
    ],
)
def test_a_driver_that_lets_views_use_what_they_cannot_is_named(play: Play, uses: Any, words: str) -> None:
    async def scenario(world: World) -> None:
        await prepared(world, start=False)
        world.start_parley(drivers=[Astray(uses)])
        await world.add_claim("inputs", "workspace", **VIEW)
        await runs(world, "writer", claims=("work",))
        assert await runs(world, "reader", claims=("inputs",)) == ""
        (_, note), *_ = [event for event in await world.events_on("reader") if event[0] == "AllocationFailed"]
        assert words in note
        assert not await is_there(world, "inputs")
        assert len(world.ledger) == 1

    play(scenario)


async def story(world: World) -> None:
    await prepared(world, start=False)
    await world.add_claim("inputs", "workspace", **VIEW)
    await runs(world, "writer", claims=("work",))
    await runs(world, "reader", "view")
    await runs(world, "other", claims=("inputs",))
    await ended(world, "writer")
    assert await is_there(world)
    await ended(world, "reader")
    assert await is_there(world)
    await world.force_delete("other")
    await world.settle(60)


async def check(world: World) -> None:
    assert not await is_there(world, "inputs")
    assert not await is_there(world)
    assert len(world.ledger) == 0
    assert list((await world.client.list(CLAIM_RELEASES)).items) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(play: Play, after: bool) -> None:
    def start(world: World, client: Client | None) -> asyncio.Task[None]:
        return world.start_parley(client, drivers=[WorkspaceDriver()])

    async def life(world: World, death: Death) -> int:
        async with Executioner(world, lambda client: start(world, client), death) as executioner:
            await story(world)
            await check(world)
        return executioner.writes

    at_every_write(play, life, after=after, at_least=21)


def test_after_a_restart_views_show_the_claim_that_is_there_not_one_that_was_forced_away(play: Play) -> None:
    """Its node is silent: what it has of the former claim is known by a ClaimRelease alone, and restored last."""

    async def scenario(world: World) -> None:
        await prepared(world)
        former = await runs(world, "former", claims=("work",))
        world.kubelets.stopped.add(former)
        await ended(world, "former")
        await world.force_away("work")
        await world.client.patch(NODES, former, {"spec": {"unschedulable": True}})
        await claim(world, "work")
        node = await runs(world, "writer", claims=("work",))
        assert node not in ("", former)
        await world.crash()
        world.start_parley(drivers=[WorkspaceDriver()])
        await world.settle()
        assert await runs(world, "reader", "view") == node
        world.kubelets.stopped.discard(former)
        await world.settle()
        assert await runs(world, "later", "view") == node

    play(scenario)
