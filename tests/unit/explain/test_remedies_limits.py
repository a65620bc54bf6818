"""What would help a pod that a limit keeps waiting: who holds what the limit counts."""

import pytest
from tests.unit.explain.conftest import Play, explained, helps
from tests.unit.explain.small_devices import two_small_ones_on
from tests.unit.explain.test_snapshot import Refusing
from tests.unit.scheduler.conftest import World

from parley.api import reasons
from parley.api.resources import CLASSES, NAMESPACES
from parley.explain.explaining import explain
from parley.explain.remedies import ADVICE
from parley.kube.client import ApiError, Call, Forbidden


def test_a_limit_names_who_holds_what_it_counts(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_small_ones_on(world, "a")
        await world.client.patch(CLASSES, "gpu", {"limits": [{"claims": 2}]})
        await world.add_pod("wants", "one")
        await world.settle()

        told = await explained(world, "wants")

        assert told.code == reasons.LIMIT_REACHED
        assert helps(told) == [
            "pod default/left holds 1 of class gpu, released when it ends",
            "pod default/right holds 1 of class gpu, released when it ends",
            ADVICE[reasons.LIMIT_REACHED],
        ]

    play(scenario)


@pytest.mark.parametrize("lists_namespaces", [True, False])
def test_a_limit_of_namespaces_with_a_label_names_who_holds_what_it_counts(
    play: Play, lists_namespaces: bool
) -> None:
    """And not who holds something of another class. Who may not list namespaces may get the own one."""

    def refuse(call: Call) -> ApiError | None:
        hidden = call.resource == NAMESPACES and call.verb == "list" and not lists_namespaces
        return Forbidden(403, "Forbidden", "namespaces is forbidden") if hidden else None

    async def scenario(world: World) -> None:
        labels = {"tier": "trial"}
        await world.client.create(NAMESPACES, {"metadata": {"name": "default", "labels": labels}})
        world.start_parley()
        await world.add_node("a", 4)
        await world.add_class(limits=[{"namespaceSelector": {"matchLabels": labels}, "claims": 1}, {"claims": 9}])
        await world.add_class("other", limits=[{"namespaceSelector": {"matchLabels": labels}, "claims": 9}])
        await world.add_template("one")
        await world.add_template("another", "other")
        await world.add_pod("holds", "one")
        await world.add_pod("apart", "another")
        await world.settle()
        await world.add_pod("wants", "one", "another")
        await world.settle()

        told = await explain(Refusing(world.client, refuse), world.clock(), "default", "wants")

        assert told.code == reasons.LIMIT_REACHED
        assert helps(told)[:-1] == ["pod default/holds holds 1 of class gpu, released when it ends"]
        assert told.unread == (() if lists_namespaces else ("namespaces is forbidden",))

    play(scenario)


def test_nobodys_end_helps_a_pod_that_wants_more_than_the_limit(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_small_ones_on(world, "a")
        await world.client.patch(CLASSES, "gpu", {"limits": [{"claims": 1}]})
        await world.add_pod("wants", "one", "one")
        await world.settle()

        told = await explained(world, "wants")

        assert (told.code, helps(told)) == (reasons.LIMIT_REACHED, [])
        assert told.message.endswith("allows it 1 in all: request less, or raise the class's limits[0].claims")

    play(scenario)


def test_a_limit_names_nobody_who_holds_other_classes(play: Play) -> None:
    async def scenario(world: World) -> None:
        await two_small_ones_on(world, "a")
        await world.add_class("slots", driverName="tokens.parley.dev", parameters={"pool": 9})
        await world.add_template("slot", "slots")
        await world.add_pod("slotted", "slot")
        await world.client.patch(CLASSES, "gpu", {"limits": [{"claims": 2}]})
        await world.settle()
        await world.add_pod("wants", "one", "slot")
        await world.settle()

        told = await explained(world, "wants")

        assert [one.pods for one in told.remedies if one.kind == "podEnds"] == [
            ("default/left",),
            ("default/right",),
        ]

    play(scenario)


def test_a_limit_names_claims_that_no_pod_uses_and_not_everybody(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 9)
        await world.add_class(limits=[{"claims": 7}])
        await world.add_template("one")
        for number in range(7):
            await world.add_claim(f"c{number}", mode="Immediate")
        await world.settle()
        await world.add_pod("wants", "one")
        await world.settle()

        texts = helps(await explained(world, "wants"))

        assert texts == [
            *(f"claim default/c{number} holds 1 of class gpu, released when it is deleted" for number in range(5)),
            "2 more claims of the namespace count for the limit: see `parley get uses -n default`",
            ADVICE[reasons.LIMIT_REACHED],
        ]

    play(scenario)
