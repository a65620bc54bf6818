"""Bad input and names that are taken: what claims and pods are told, and that all goes on once it is mended."""

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import condition
from tests.unit.scheduler.two_nodes import NAMESPACE, two_nodes

from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLASSES, TEMPLATES

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


@pytest.mark.scheduling_paths("native")  # waits 30 s for standalone drivers
def test_bad_input_is_told_and_the_pod_goes_on_once_it_is_mended(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=9)
        await world.add_class()
        await world.add_class("stranger")
        await world.client.patch(CLASSES, "stranger", {"driverName": "other.example.com"})
        await world.add_template("no-class", "absent")
        await world.add_template("no-driver", "stranger")
        await world.add_template("typo", modle="a100")
        await world.add_template("good")
        world.start_parley()
        for template in ("no-class", "no-driver", "typo", "missing", "good"):
            await world.add_pod(template, template)
        await world.settle()
        told = {}
        for name in ("no-class", "no-driver", "typo", "missing"):
            ((code, note),) = await world.events_on(name)
            told[name] = (code, note)
            assert await world.node_of(name) == ""
        assert await world.node_of("good") == "a"
        assert told == {
            "no-class": (
                "ClassNotFound",
                "template default/no-class: spec.resourceClassName='absent' does not exist: "
                "create that ResourceClass",
            ),
            "no-driver": (
                "DriverNotAnswering",
                "no answer within 30 s from standalone driver other.example.com: "
                "start it, or correct driverName of class stranger",
            ),
            "typo": (
                "ParametersInvalid",
                "parameters of template default/typo: modle='a100' is not a parameter of this driver "
                "(known parameters: count, memory, model, shared)",
            ),
            "missing": (
                "ClaimNotFound",
                "template default/missing of claim 'gpu-0' does not exist: "
                "create a ResourceClaimTemplate of parley.dev (or of resource.k8s.io) with that name",
            ),
        }
        await world.add_class("absent")
        await world.client.patch(CLASSES, "stranger", {"driverName": "device.parley.dev"})
        await world.add_template("missing")
        await world.client.delete(TEMPLATES, "typo", NAMESPACE)
        await world.delete_pod("typo")
        await world.settle()
        await world.add_template("typo", model="a100")
        await world.add_pod("typo", "typo")
        await world.settle()
        assert [await world.node_of(name) for name in told] == ["a"] * 4

    play(scenario)


@pytest.mark.parametrize("pod_first", [False, True], ids=["claim first", "pod first"])
def test_a_name_that_is_taken_is_told_on_claim_and_pod_and_mended_by_deleting(play: Any, pod_first: bool) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        other = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "other"}}]}}
        await world.create(BUILTIN_CLAIMS, {"metadata": {"name": "disk", "namespace": NAMESPACE}, "spec": other})
        if pod_first:
            await world.add_pod("p", claims=["disk"])
            await world.settle()
        await world.add_claim("disk")
        if not pod_first:
            await world.add_pod("p", claims=["disk"])
        await world.settle()
        note = (
            "a resource.k8s.io ResourceClaim default/disk exists that Parley did not create: "
            "delete it, or give the parley.dev ResourceClaim another name"
        )
        assert (await world.events_on("p"))[-1] == ("NameTaken", note)
        accepted = condition(await world.claim("disk"), "Accepted")
        assert (accepted.type, accepted.status, accepted.reason, accepted.message) == (
            "Accepted",
            "False",
            "NameTaken",
            note,
        )
        await world.client.delete(BUILTIN_CLAIMS, "disk", NAMESPACE)
        await world.settle()
        assert await world.node_of("p") in ("a", "b")
        accepted = condition(await world.claim("disk"), "Accepted")
        assert (accepted.status, accepted.reason) == ("True", "Accepted")

    play(scenario)


def test_parameters_that_do_not_fit_into_a_mirror_are_told(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_template("huge", model="x" * 10_000)
        await world.add_claim("huge", model="x" * 10_000)
        await world.add_pod("p", "huge")
        await world.add_pod("q", claims=["huge"])
        await world.settle()
        rest = "have 10012 bytes as JSON, at most 10000 fit: shorten them"
        assert await world.events_on("p") == [("ParametersInvalid", f"parameters of template default/huge {rest}")]
        assert await world.events_on("q") == [("ParametersInvalid", f"parameters of claim default/huge {rest}")]
        assert (await world.claim("huge")).status.conditions[0].reason == "ParametersInvalid"

    play(scenario)


def test_pods_that_can_not_share_a_claim_while_its_mirror_is_deleted_are_told_why(play: Any) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", devices=1)
        await world.add_class(shareable=True)
        await world.add_claim("disk")
        await world.add_pod("old", claims=["disk"])
        await world.settle()
        await world.client.delete(BUILTIN_CLAIMS, "disk", NAMESPACE)

        await world.add_pod("new", claims=["disk"])
        await world.settle()

        waits = (await world.scheduling("new")).status
        assert (waits.waiting_for, waits.message) == (
            "ClaimInUse",
            "the built-in claim default/disk was deleted while pod default/old uses it, and is recreated after "
            "that: wait, or use another claim",
        )
        await world.delete_pod("old")
        await world.settle(10)
        assert await world.node_of("new") == "a"

    play(scenario)


def test_a_pod_whose_claim_was_made_from_a_template_of_others_is_to_be_recreated(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        other = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "other"}}]}}
        taken = {"metadata": {"name": "mine", "namespace": NAMESPACE}, "spec": {"spec": other}}
        await world.create(BUILTIN_TEMPLATES, taken)
        await world.add_template("mine")
        await world.add_pod("p", "mine")
        await world.settle()
        (claim,) = (await world.client.list(BUILTIN_CLAIMS, NAMESPACE)).items
        note = (
            f"claim default/{claim.metadata.name} for 'gpu-0' was made from a resource.k8s.io "
            "ResourceClaimTemplate default/mine that Parley did not create: delete that template, if it still "
            "exists, and recreate the pod, or give the parley.dev ResourceClaimTemplate another name"
        )
        await world.client.delete(BUILTIN_TEMPLATES, "mine", NAMESPACE)
        await world.settle()
        assert ("NameTaken", note) in await world.events_on("p")
        waits = (await world.scheduling("p")).status
        assert (waits.waiting_for, waits.message) == ("NameTaken", note)

        await world.delete_pod("p")
        await world.add_pod("p", "mine")
        await world.settle()
        assert await world.node_of("p") in ("a", "b")

    play(scenario)
