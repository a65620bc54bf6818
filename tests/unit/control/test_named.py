"""Who may use a named claim now, and what is in the way of the others, word by word."""

from dataclasses import dataclass

import pytest
from tests.unit.control.builders import NAMESPACE, NOW, TOKENS, World, a_claim, a_class, played, user
from tests.unit.control.named import ALLOCATION, Given, found, hold, ready

from parley.api import reasons
from parley.api.names import FINALIZER
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES
from parley.control.claims.named import NamedClaim, has_mirror, is_outdated, parameters_not_understood
from parley.control.claims.on_demand import shared_topic
from parley.control.claims.podclaims import Problem
from parley.control.objects.class_request import ClassRequest
from parley.control.objects.mirror import MAX_USERS, consumer
from parley.control.objects.standin import stand_in
from parley.negotiation.waiting import Topic
from parley.sdk import PodReference

CLASS_TOPIC = ("class", "licence")
TOPIC = ("claim", NAMESPACE, "c")


async def nothing(world: World) -> None:
    """Neither claim exists."""


async def being_made(world: World) -> None:
    await world.class_()
    await world.claim()


async def without_class(world: World) -> None:
    await world.claim()


async def too_large(world: World) -> None:
    await world.class_()
    await world.claim(notes="x" * 10_000)


async def refused(world: World) -> None:
    await world.class_()
    world.cluster.mirror_refused(await world.claim(), "quota exceeded")


async def taken(world: World) -> None:
    await world.class_()
    await world.claim()
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    await world.put(BUILTIN_CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})


async def being_deleted(world: World) -> None:
    await ready(world)
    await world.admin.patch(CLAIMS, "c", {"metadata": {"finalizers": [FINALIZER]}}, NAMESPACE)
    await world.delete(CLAIMS, "c")


async def mirror_being_deleted(world: World) -> None:
    await ready(world)
    await world.delete(BUILTIN_CLAIMS, "c")


async def mirror_being_deleted_under_pods(world: World) -> None:
    await world.class_(shareable=True)
    await world.mirror(await world.claim(), shareable=True)
    await hold(world, "q", "r", shareable=True)
    await world.delete(BUILTIN_CLAIMS, "c")


async def in_use(world: World) -> None:
    await ready(world)
    await hold(world, "q")


async def in_use_by_many(world: World) -> None:
    await world.class_(shareable=True)
    await world.mirror(await world.claim(), shareable=True)
    await hold(world, *(f"q{number}" for number in range(MAX_USERS)), shareable=True)


async def being_allocated(world: World) -> None:
    await ready(world)
    world.ledger.expect(user("q"), "c", (await world.the_claim()).metadata.uid, "licence")


async def allocated_by_nobody_known(world: World) -> None:
    await ready(world)
    await world.patch_status(CLAIMS, "c", {"driverName": TOKENS, "allocation": {"shareable": False}})


async def class_became_shareable(world: World) -> None:
    await ready(world)
    await world.admin.patch(CLASSES, "licence", {"shareable": True})
    await world.seen()


async def immediate(world: World) -> None:
    await world.class_()
    await world.mirror(await world.claim(mode="Immediate"))


async def immediate_outside(world: World) -> None:
    await world.class_(driver="outside.example.com")
    await world.mirror(await world.claim(mode="Immediate"))


async def immediate_told(world: World) -> None:
    await immediate(world)
    condition = {
        "type": "Allocated",
        "status": "False",
        "reason": "NothingViable",
        "message": "0 of 2 nodes are available",
    }
    times = {"lastTransitionTime": NOW}
    await world.patch_status(CLAIMS, "c", {"conditions": [{**condition, **times}]})


@dataclass
class Case:
    """What is the matter, and what the pod's user is told. `passes`: it ends within moments, nobody is told."""

    given: Given
    code: str
    message: str
    passes: bool = False
    topics: tuple[Topic, ...] = ()


CASES = [
    Case(
        nothing,
        reasons.CLAIM_NOT_FOUND,
        "claim team/c does not exist: create a ResourceClaim of parley.dev (or of resource.k8s.io) with that name",
        topics=(shared_topic(NAMESPACE),),
    ),
    Case(
        being_made,
        reasons.CLAIM_NOT_FOUND,
        "the built-in claim team/c is being created",
        topics=(CLASS_TOPIC,),
        passes=True,
    ),
    Case(
        without_class,
        reasons.CLASS_NOT_FOUND,
        "claim team/c: spec.resourceClassName='licence' does not exist: create that ResourceClass",
        topics=(CLASS_TOPIC,),
    ),
    Case(
        too_large,
        reasons.PARAMETERS_INVALID,
        "parameters of claim team/c have 10012 bytes as JSON, at most 10000 fit: shorten them",
    ),
    Case(
        refused,
        reasons.WRITE_REFUSED,
        "the API server refused the resource.k8s.io ResourceClaim that stands for team/c: quota exceeded: "
        "change what it names; Parley tries again",
    ),
    Case(
        taken,
        reasons.NAME_TAKEN,
        "a resource.k8s.io ResourceClaim team/c exists that Parley did not create: "
        "delete it, or give the parley.dev ResourceClaim another name",
    ),
    Case(
        being_deleted,
        reasons.CLAIM_BEING_DELETED,
        "claim team/c is being deleted: recreate it once it is gone, or the pod with another claim",
    ),
    Case(
        mirror_being_deleted,
        reasons.CLAIM_NOT_FOUND,
        "the built-in claim team/c was deleted and is being recreated",
        topics=(CLASS_TOPIC,),
        passes=True,
    ),
    Case(
        mirror_being_deleted_under_pods,
        reasons.CLAIM_IN_USE,
        "the built-in claim team/c was deleted while pods team/q, team/r use it, and is recreated after that: "
        "wait, or use another claim",
    ),
    Case(
        in_use,
        reasons.CLAIM_IN_USE,
        "claim team/c is not shareable and pod team/q uses it: wait until that ends, or use a template",
    ),
    Case(
        in_use_by_many,
        reasons.CLAIM_FULL,
        "256 pods use claim team/c, which is the most that Kubernetes allows: "
        "wait until one of them ends, or create another claim for some of them",
    ),
    Case(
        being_allocated,
        reasons.CLAIM_IN_USE,
        "claim team/c is being allocated for pod team/q: wait until that is done",
    ),
    Case(
        allocated_by_nobody_known,
        reasons.CLAIM_NOT_FOUND,
        "claim team/c is being released",
        topics=(CLASS_TOPIC,),
        passes=True,
    ),
    Case(
        class_became_shareable,
        reasons.CLAIM_NOT_FOUND,
        "the built-in claim team/c is being recreated for its class",
        topics=(CLASS_TOPIC,),
        passes=True,
    ),
    Case(
        immediate,
        reasons.CLAIM_PENDING,
        f"claim team/c is not allocated yet: driver {TOKENS} has yet to allocate it, without a pod",
        passes=True,
    ),
    Case(
        immediate_outside,
        reasons.CLAIM_PENDING,
        "claim team/c is not allocated yet: driver outside.example.com has yet to allocate it, without a pod",
    ),
    Case(immediate_told, reasons.CLAIM_PENDING, "claim team/c is not allocated yet: 0 of 2 nodes are available"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.given.__name__)
def test_what_is_in_the_way(case: Case) -> None:
    async def story(world: World) -> None:
        await case.given(world)
        claim = await found(world)
        assert claim is not None
        problem = claim.problem
        assert problem is not None
        assert (problem.code, problem.message) == (case.code, case.message)
        assert (problem.transient, problem.topics) == (case.passes, (TOPIC, *case.topics))

    played(story)


def test_a_free_claim_is_found_with_what_it_asks_for() -> None:
    async def story(world: World) -> None:
        await world.class_()
        await world.mirror(await world.claim(count=2))
        claim = await found(world)
        assert claim is not None
        assert (claim.problem, claim.holding) == (None, None)
        assert claim.class_request == ClassRequest("licence", {"count": 2})
        assert (claim.mirror, claim.claim) == (world.cluster.mirror((NAMESPACE, "c")), await world.the_claim())

    played(story)


def test_a_shareable_claim_that_others_use_is_open() -> None:
    async def story(world: World) -> None:
        await world.class_(shareable=True)
        await world.mirror(await world.claim(), shareable=True)
        await hold(world, "q", shareable=True)
        claim = await found(world)
        assert claim is not None
        assert claim.problem is None

    played(story)


def test_the_last_place_in_a_shareable_claim_is_the_pods_that_is_let_in_already() -> None:
    async def story(world: World) -> None:
        await in_use_by_many(world)
        pod = await world.pod(claims=["c"])
        users = [consumer(PodReference(NAMESPACE, "p", pod.metadata.uid))]
        await world.patch_status(BUILTIN_CLAIMS, "c", {"allocation": ALLOCATION, "reservedFor": users})
        claim = await found(world, pod)
        assert claim is not None
        assert claim.problem is None

    played(story)


@pytest.mark.parametrize("with_stand_in", [False, True])
def test_a_claim_of_another_dra_driver_is_not_ours(with_stand_in: bool) -> None:
    async def story(world: World) -> None:
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
        await world.put(BUILTIN_CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
        if with_stand_in:
            await world.put(CLAIMS, stand_in(await world.pod("q"), "gpu", "c", ClassRequest("licence", None)))
        assert await found(world) is None

    played(story)


def test_a_claim_that_is_gone_is_waited_for_also_while_its_mirror_is_seen() -> None:
    """Watches of two kinds: one may be behind. A pod that waited for nothing then would be woken by nothing."""

    async def story(world: World) -> None:
        await world.class_()
        await world.mirror(await world.claim())
        await world.delete(CLAIMS, "c")
        assert world.cluster.mirror((NAMESPACE, "c")) is not None
        claim = await found(world)
        assert claim is not None
        assert claim.problem is not None
        assert claim.problem.code == reasons.CLAIM_NOT_FOUND
        assert TOPIC in claim.problem.topics

    played(story)


def test_a_mirror_is_outdated_when_its_unused_claims_class_changed_its_mind_about_sharing() -> None:
    async def story(world: World) -> None:
        await ready(world)
        claim, mirror = await world.the_claim(), await world.the_mirror()
        assert not is_outdated(claim, mirror, world.cluster.class_("licence"))
        await world.admin.patch(CLASSES, "licence", {"shareable": True})
        await world.seen()
        assert is_outdated(claim, mirror, world.cluster.class_("licence"))
        used = await world.patch_status(BUILTIN_CLAIMS, "c", {"allocation": ALLOCATION})
        assert not is_outdated(claim, used, world.cluster.class_("licence"))

    played(story)


def test_no_mirror_follows_before_the_class_is_there_nor_once_the_claim_goes() -> None:
    async def story(world: World) -> None:
        claim = await world.claim()
        assert not has_mirror(claim, world.cluster.class_("licence"))
        await world.class_()
        assert has_mirror(claim, world.cluster.class_("licence"))
        going = claim.metadata.model_copy(update={"deletion_timestamp": NOW})
        assert not has_mirror(claim.model_copy(update={"metadata": going}), world.cluster.class_("licence"))

    played(story)


def test_parameters_that_the_driver_does_not_understand_are_a_fault() -> None:
    async def story(world: World) -> None:
        def fault(count: int) -> Problem | None:
            return parameters_not_understood(
                NamedClaim(world.state, a_claim(parameters={"count": count}), None, a_class())
            )

        assert fault(1) is None
        problem = fault(0)
        assert problem is not None
        assert problem.code == reasons.PARAMETERS_INVALID
        assert "count=0" in problem.message

    played(story)
