"""Named claims have a mirror, finalizers and a condition that tells whether they can be negotiated at all."""

from typing import Any

import pytest
from tests.support.faults import NumberedCall
from tests.unit.control.builders import NAMESPACE, TOKENS, Acting, World, a_holding, played

from parley.api import reasons
from parley.api.meta import Condition
from parley.api.names import FINALIZER
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, Resource
from parley.control.objects.mirror import is_shareable, owned_by
from parley.control.objects.pod import reference
from parley.kube.client import Forbidden, NotFound
from parley.kube.memory.managed_fields import UPDATE, Manager

KEY = (NAMESPACE, "c")


async def sync(world: World, acting: Acting | None = None, times: int = 6) -> None:
    """Look at the claim until nothing is left to do."""
    acting = acting or Acting(world)
    for _ in range(times):
        await world.seen()
        await acting.claims.sync(KEY)
    await world.seen()


async def accepted(world: World) -> Condition:
    return next(c for c in (await world.the_claim()).status.conditions if c.type == reasons.ACCEPTED)


async def is_gone(world: World) -> bool:
    try:
        await world.the_claim()
    except NotFound:
        return True
    return False


@pytest.mark.parametrize("shareable", [False, True])
def test_a_claim_gets_a_mirror_as_its_class_wants_it_and_both_a_finalizer(shareable: bool) -> None:
    async def story(world: World) -> None:
        await world.class_(shareable=shareable)
        await world.claim()
        await sync(world)
        claim, mirror = await world.the_claim(), await world.the_mirror()
        assert owned_by(mirror, claim.metadata.uid)
        assert is_shareable(mirror) is shareable
        assert list(claim.metadata.finalizers) == mirror.metadata.finalizers == [FINALIZER]
        before = world.server.resource_version
        await sync(world)
        assert world.server.resource_version == before

    played(story)


def test_a_finalizer_that_was_taken_off_is_put_back() -> None:
    """`parley uninstall --force` takes off those of claims in use, and Parley is installed again."""

    async def story(world: World) -> None:
        await world.class_()
        await world.claim()
        await sync(world)
        await world.admin.patch(CLAIMS, "c", {"metadata": {"finalizers": ["example.com/other"]}}, NAMESPACE)
        await world.admin.patch(BUILTIN_CLAIMS, "c", {"metadata": {"finalizers": None}}, NAMESPACE)

        await sync(world)

        claim, mirror = await world.the_claim(), await world.the_mirror()
        assert claim.metadata.finalizers == ("example.com/other", FINALIZER)
        assert mirror.metadata.finalizers == [FINALIZER]

    played(story)


@pytest.mark.parametrize("resource", [CLAIMS, BUILTIN_CLAIMS], ids=["claim", "mirror"])
def test_an_object_with_very_many_owners_and_finalizers_keeps_all_of_them(resource: Resource[Any]) -> None:
    """The cache has few of them: what is written comes from the API server's object."""
    refers = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}
    more: dict[str, Any] = {
        "ownerReferences": [{**refers, "uid": f"uid-{i}"} for i in range(2_000)],
        "labels": {f"a{i}": "b" for i in range(300)},
        "finalizers": [f"example.com/{i}" for i in range(40)],
    }

    async def story(world: World) -> None:
        async def live() -> Any:
            return (await world.admin.get(resource.untyped(), "c", NAMESPACE))["metadata"]

        world.server.garbage_lag = lambda: 3600.0
        await world.class_()
        await world.claim()
        await sync(world)
        there = {**refers, "kind": "Pod", "name": "p", "uid": (await world.pod()).metadata.uid}
        before = (await live()).get("ownerReferences", [])
        changed = {**more, "ownerReferences": [*before, there, *more["ownerReferences"]]}
        await world.admin.patch(resource, "c", {"metadata": changed}, NAMESPACE)

        await sync(world)

        meta = await live()
        assert meta["finalizers"] == [*more["finalizers"], FINALIZER]
        assert meta["ownerReferences"] == changed["ownerReferences"]
        assert meta["labels"].items() >= more["labels"].items()

        await world.admin.delete(resource, "c", NAMESPACE)
        await sync(world)

        meta = await live()
        assert (meta["finalizers"], meta["ownerReferences"]) == (more["finalizers"], changed["ownerReferences"])

    played(story)


@pytest.mark.parametrize(
    ("class_", "parameters", "reason", "message"),
    [
        ({}, {"count": 1}, reasons.ACCEPTED, "class, driver and parameters are known"),
        (
            {"driver": "outside.example.com"},
            {"size": "any"},
            reasons.ACCEPTED,
            "the class is known; driver outside.example.com will check the parameters",
        ),
        (
            None,
            {},
            reasons.CLASS_NOT_FOUND,
            "claim team/c: spec.resourceClassName='licence' does not exist: create that ResourceClass",
        ),
        (
            {},
            {"count": 0},
            reasons.PARAMETERS_INVALID,
            "parameters of claim team/c: count=0: input should be greater than or equal to 1 "
            "(known parameters: count)",
        ),
        (
            {},
            {"notes": "x" * 10_000},
            reasons.PARAMETERS_INVALID,
            "parameters of claim team/c have 10012 bytes as JSON, at most 10000 fit: shorten them",
        ),
    ],
    ids=["known", "outside", "no-class", "bad-parameters", "too-large"],
)
def test_the_condition_tells_whether_the_claim_can_be_negotiated(
    class_: dict[str, Any] | None, parameters: dict[str, Any], reason: str, message: str
) -> None:
    async def story(world: World) -> None:
        if class_ is not None:
            await world.class_(**class_)
        await world.claim(**parameters)
        await sync(world)
        condition = await accepted(world)
        assert (condition.reason, condition.message) == (reason, message)
        assert condition.status == ("True" if reason == reasons.ACCEPTED else "False")

    played(story)


def test_a_claim_of_another_dra_driver_in_the_mirrors_place_is_told_and_left_alone() -> None:
    async def story(world: World) -> None:
        await world.class_()
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
        await world.put(BUILTIN_CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
        theirs = await world.the_mirror()
        await world.claim()
        await sync(world)
        assert (await accepted(world)).reason == reasons.NAME_TAKEN
        assert await world.the_mirror() == theirs

    played(story)


def test_the_mirror_of_an_earlier_claim_of_the_name_goes_and_the_claim_gets_its_own() -> None:
    """The earlier one went while its mirror was in deletion, and another of its name was there at once."""

    async def story(world: World) -> None:
        await world.class_()
        await world.claim()
        await sync(world)
        await world.delete(BUILTIN_CLAIMS, "c")
        await world.admin.patch(CLAIMS, "c", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.delete(CLAIMS, "c")
        await world.claim()
        await sync(world, times=1)
        message = "the built-in claim of an earlier claim team/c is being deleted: wait until it is gone"
        assert (await accepted(world)).message == message
        await sync(world)
        assert owned_by(await world.the_mirror(), (await world.the_claim()).metadata.uid)
        assert (await accepted(world)).reason == reasons.ACCEPTED

    played(story)


def test_a_mirror_that_the_api_server_refuses_is_told_until_it_is_made() -> None:
    async def story(world: World) -> None:
        def refuse(call: NumberedCall) -> None:
            if call.verb == "create":
                raise Forbidden(403, "Forbidden", "exceeded quota")

        await world.class_()
        await world.claim()
        world.before = refuse
        with pytest.raises(Forbidden):
            await sync(world)
        await sync(world, times=1)
        assert (await accepted(world)).reason == reasons.WRITE_REFUSED
        world.before = lambda call: None
        await sync(world)
        assert (await accepted(world)).reason == reasons.ACCEPTED

    played(story)


def test_an_unused_mirror_follows_its_class() -> None:
    async def story(world: World) -> None:
        await world.class_()
        await world.claim()
        await sync(world)
        await world.admin.patch(CLASSES, "licence", {"shareable": True})
        await sync(world)
        assert is_shareable(await world.the_mirror())

    played(story)


@pytest.mark.parametrize("deleted", ["claim", "mirror"])
def test_neither_goes_while_a_pod_uses_what_was_allocated(deleted: str) -> None:
    async def story(world: World) -> None:
        await world.class_()
        await world.claim()
        await sync(world)
        pod = await world.pod(claims=["c"])
        mine, uid = reference(pod), (await world.the_claim()).metadata.uid
        mirror = await world.the_mirror()
        holding = a_holding("c", uid=uid, pods={mine.uid: mine})
        world.ledger.add(holding)
        await world.delete(CLAIMS if deleted == "claim" else BUILTIN_CLAIMS, "c")
        await sync(world)
        assert (await world.the_mirror()).metadata.uid == mirror.metadata.uid
        assert not await is_gone(world)
        world.ledger.drop(holding)
        await sync(world)
        assert await is_gone(world) == (deleted == "claim")
        if deleted == "mirror":
            assert (await world.the_mirror()).metadata.uid != mirror.metadata.uid

    played(story)


def test_a_record_of_what_nobody_holds_is_void() -> None:
    async def story(world: World) -> None:
        await world.class_()
        await world.claim()
        await sync(world)
        handles = [{"driverName": TOKENS, "data": {"count": 1}}]
        await world.patch_status(CLAIMS, "c", {"driverName": TOKENS, "allocation": {"handles": handles}})
        await sync(world)
        assert (await world.the_claim()).status.allocation is None

    played(story)


def test_what_was_allocated_for_a_pod_that_is_gone_before_anybody_joined_is_given_back() -> None:
    async def story(world: World) -> None:
        await world.class_()
        await world.claim()
        await sync(world)
        world.ledger.add(a_holding("c", uid=(await world.the_claim()).metadata.uid))
        await sync(world)
        assert len(world.ledger) == 0

    played(story)


def test_a_mirror_without_its_claim_keeps_nothing_that_nobody_uses() -> None:
    async def story(world: World) -> None:
        await world.class_()
        await world.mirror(await world.claim())
        await world.admin.delete(CLAIMS, "c", NAMESPACE)
        await sync(world)
        with pytest.raises(NotFound):
            await world.the_mirror()

    played(story)


def test_the_mirror_of_a_claim_that_was_forced_away_stays_while_a_pod_uses_it() -> None:
    """It is the only record of that: a controller that comes later would allocate the devices again."""

    async def story(world: World) -> None:
        await world.class_()
        claim = await world.claim()
        await sync(world)
        mine, mirror = reference(await world.pod(claims=["c"])), await world.the_mirror()
        holding = a_holding("c", uid=claim.metadata.uid, pods={mine.uid: mine})
        world.ledger.add(holding)
        await world.admin.patch(CLAIMS, "c", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.delete(CLAIMS, "c")
        await world.claim()
        await sync(world)
        assert (await world.the_mirror()).metadata.uid == mirror.metadata.uid
        assert (await accepted(world)).reason == reasons.CLAIM_BEING_DELETED

        world.ledger.drop(holding)
        await sync(world)
        assert owned_by(await world.the_mirror(), (await world.the_claim()).metadata.uid)

    played(story)


def test_no_mirror_is_made_again_for_a_claim_whose_deletion_is_seen_late() -> None:
    """The garbage collector would delete it at once, which would call for another one, without a pause."""

    async def story(world: World) -> None:
        acting = Acting(world)
        await world.class_()
        await world.claim()
        await sync(world, acting)
        await world.admin.patch(BUILTIN_CLAIMS, "c", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.delete(BUILTIN_CLAIMS, "c")
        world.server.delete(CLAIMS, "c", NAMESPACE)
        world.server.patch(
            CLAIMS, "c", {"metadata": {"finalizers": None}}, NAMESPACE, Manager("admin", UPDATE, "")
        )
        assert world.cluster.claim(KEY) is not None
        before = len(world.writes)
        await acting.claims.sync(KEY)
        assert [call.verb for call in world.writes[before:]].count("create") == 0

    played(story)


def test_an_immediate_claim_is_allocated_as_soon_as_it_is_accepted() -> None:
    async def story(world: World) -> None:
        await world.class_()
        await world.node("node-1")
        await world.claim(mode="Immediate")
        acting = Acting(world)
        await sync(world, acting)
        assert (await world.the_claim()).status.allocation is not None
        await world.delete(CLAIMS, "c")
        await sync(world, acting)
        assert (await is_gone(world), len(world.ledger)) == (True, 0)

    played(story)
