"""What keeps a generated claim from being made or negotiated, with its exact message."""

from dataclasses import dataclass

import pytest
from tests.unit.control import allocated
from tests.unit.control.allocated import OTHERS, Given, gathered
from tests.unit.control.builders import (
    NAMESPACE,
    TOKENS,
    World,
    generated_metadata,
    played,
)

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.names import DEVICE_CLASS, FINALIZER
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, PODS
from parley.control.claims.gathering import gather
from parley.control.claims.generated import LOST_SECONDS
from parley.control.claims.podclaims import Problem
from parley.control.objects.class_request import ClassRequest
from parley.control.objects.standin import stand_in
from parley.negotiation.waiting import Topic


async def nothing(world: World, pod: Pod) -> None:
    """There is no template."""


async def templated(world: World, pod: Pod) -> None:
    await world.class_()
    await world.template()


async def template_taken(world: World, pod: Pod) -> None:
    await world.template()
    await world.put(BUILTIN_TEMPLATES, {"metadata": {"name": "licence"}, "spec": {"spec": OTHERS}})


async def template_too_large(world: World, pod: Pod) -> None:
    await world.template(notes="x" * 10_000)


async def template_refused(world: World, pod: Pod) -> None:
    world.cluster.mirror_refused(await world.template(), "quota exceeded")


async def generated(world: World, pod: Pod) -> None:
    await world.class_()
    await world.generated(pod)


async def without_class(world: World, pod: Pod) -> None:
    await world.generated(pod)


async def deleted(world: World, pod: Pod) -> None:
    await generated(world, pod)
    await world.admin.patch(BUILTIN_CLAIMS, "p-licence", {"metadata": {"finalizers": [FINALIZER]}}, NAMESPACE)
    await world.delete(BUILTIN_CLAIMS, "p-licence")


async def made_by_hand(world: World, pod: Pod) -> None:
    meta = {"name": "p-licence", **generated_metadata(pod, "licence")}
    request = {"name": "exclusive", "exactly": {"deviceClassName": DEVICE_CLASS}}
    await world.put(BUILTIN_CLAIMS, {"metadata": meta, "spec": {"devices": {"requests": [request]}}})


async def stand_in_taken(world: World, pod: Pod) -> None:
    await generated(world, pod)
    await world.claim("p-licence")


async def stand_in_going(world: World, pod: Pod, driver: str = "outside.example.com") -> None:
    await world.class_(driver=driver)
    await world.generated(pod)
    await world.put(CLAIMS, stand_in(pod, "licence", "p-licence", ClassRequest("licence", {})))
    await world.patch_status(
        CLAIMS, "p-licence", {"driverName": "outside.example.com", "allocation": {"shareable": False}}
    )


@dataclass
class Case:
    """What is the matter, what the pod's user is told, and what would change it. `passes`: it is not told."""

    given: Given
    code: str
    message: str
    topics: tuple[Topic, ...] = ()
    passes: bool = False


TEMPLATE: Topic = ("template", NAMESPACE, "licence")
CLAIM: Topic = ("claim", NAMESPACE, "p-licence")

CASES = [
    Case(
        nothing,
        reasons.CLAIM_NOT_FOUND,
        "template team/licence of claim 'licence' does not exist: "
        "create a ResourceClaimTemplate of parley.dev (or of resource.k8s.io) with that name",
        (TEMPLATE,),
    ),
    Case(
        templated,
        reasons.CLAIM_NOT_FOUND,
        "the claim for 'licence' is being created from template team/licence",
        (TEMPLATE,),
        passes=True,
    ),
    Case(
        template_taken,
        reasons.NAME_TAKEN,
        "a resource.k8s.io ResourceClaimTemplate team/licence exists that Parley did not create: "
        "delete it, or give the parley.dev ResourceClaimTemplate another name",
        (TEMPLATE,),
    ),
    Case(
        template_too_large,
        reasons.PARAMETERS_INVALID,
        "parameters of template team/licence have 10012 bytes as JSON, at most 10000 fit: shorten them",
        (TEMPLATE,),
    ),
    Case(
        template_refused,
        reasons.WRITE_REFUSED,
        "the API server refused the resource.k8s.io ResourceClaimTemplate that stands for team/licence: "
        "quota exceeded: change what it names; Parley tries again",
        (TEMPLATE,),
    ),
    Case(
        without_class,
        reasons.CLASS_NOT_FOUND,
        "template team/licence: spec.resourceClassName='licence' does not exist: create that ResourceClass",
        (("class", "licence"),),
    ),
    Case(
        deleted,
        reasons.CLAIM_NOT_FOUND,
        "the claim for 'licence' was deleted and is being recreated",
        passes=True,
    ),
    Case(
        made_by_hand,
        reasons.NAME_TAKEN,
        "claim team/p-licence names Parley's DeviceClass but was not created by Parley: "
        "create it from a parley.dev ResourceClaimTemplate",
        (CLAIM,),
    ),
    Case(
        stand_in_taken,
        reasons.NAME_TAKEN,
        "a parley.dev ResourceClaim team/p-licence exists that Parley did not create, and Parley needs the name "
        "for what the driver allocates: delete it",
        (CLAIM,),
    ),
    Case(stand_in_going, reasons.CLAIM_NOT_FOUND, "claim team/p-licence is being released", passes=True),
]


def test_a_driver_in_here_does_not_wait_for_one_that_the_class_had_before() -> None:
    async def story(world: World) -> None:
        pod = await world.pod(templates=["licence"])
        await stand_in_going(world, pod, driver=TOKENS)
        (claim,) = gather(world.state, pod)
        assert (claim.problem, claim.standalone) == (None, False)

    played(story)


def test_what_a_driver_in_here_allocated_needs_no_name() -> None:
    """A tenant takes the name of a claim that a pod is being bound with: nothing is taken back."""

    async def story(world: World) -> None:
        pod = await world.pod(templates=["licence"])
        await world.class_()
        await allocated.generated(world, pod)
        await world.claim("p-licence")
        (claim,) = gather(world.state, pod)
        assert claim.problem is None

    played(story)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.given.__name__)
def test_what_is_in_the_way_of_a_generated_claim(case: Case) -> None:
    async def story(world: World) -> None:
        (claim,) = await gathered(world, case.given)
        problem = claim.problem
        assert problem is not None
        assert (problem.code, problem.message) == (case.code, case.message)
        assert (problem.topics, problem.transient) == (case.topics, case.passes)

    played(story)


@pytest.mark.parametrize(("phase", "seconds"), [("Pending", LOST_SECONDS), ("Running", 0.0)])
def test_one_that_the_pods_status_names_and_that_is_not_there_was_deleted(phase: str, seconds: float) -> None:
    """It is reported only after a while: it may be that only the watch of claims is behind."""

    async def story(world: World) -> None:
        await world.class_()
        await world.template()
        await world.pod(templates=["licence"])
        named = [{"name": "licence", "resourceClaimName": "p-licence"}]
        pod = await world.patch_status(PODS, "p", {"phase": phase, "resourceClaimStatuses": named})

        (claim,) = gather(world.state, pod)

        assert claim.problem == Problem(
            reasons.CLAIM_NOT_FOUND,
            "claim team/p-licence, which Kubernetes generated for 'licence' from template team/licence, was "
            "deleted, and is recreated when the pod changes: recreate the pod, or change it "
            "(kubectl annotate pod p -n team example.com/changed=1)",
            (TEMPLATE,),
            transient=True,
            reported_after=seconds,
        )

    played(story)
