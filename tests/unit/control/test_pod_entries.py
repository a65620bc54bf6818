"""Pods with more claims than are evaluated: what is known of them, and how little they cost."""

from functools import partial
from typing import Any

import orjson
import pytest
from tests.support.effort import calls
from tests.unit.control.allocated import OTHERS
from tests.unit.control.builders import NAMESPACE, World, a_pod, played

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_TEMPLATES, PODS
from parley.control.caches import kept
from parley.control.caches.entries import claims_named, number_of
from parley.control.caches.indexes import named_claims
from parley.control.claims.gathering import gather
from parley.control.room import Requester
from parley.sdk.checks import MAX_ENTRIES

KINDS = {"named": {"resourceClaimName": "c{}"}, "generated": {"resourceClaimTemplateName": "t{}"}}


def entries(number: int, kind: str = "named") -> list[dict[str, str]]:
    return [{"name": f"e{i}", **{k: v.format(i) for k, v in KINDS[kind].items()}} for i in range(number)]


def pod(number: int, kind: str = "named", name: str = "p", **more: Any) -> Pod:
    return a_pod(name, resourceClaims=entries(number, kind), **more)


@pytest.mark.parametrize("number", [1, MAX_ENTRIES, MAX_ENTRIES + 1, 1000])
def test_all_claims_that_a_pod_names_are_kept(number: int) -> None:
    whole = pod(number)
    left = kept.pod(whole)

    assert [*named_claims(left)] == [*named_claims(whole)] == [(NAMESPACE, f"c{i}") for i in range(number)]
    assert number_of(left) == number_of(whole) == number
    assert len(left.spec.resource_claims) == min(number, MAX_ENTRIES)


def test_a_claim_that_is_named_many_times_is_kept_once() -> None:
    again = [{"name": f"x{i}", "resourceClaimName": "c0"} for i in range(300)]
    left = kept.pod(a_pod(resourceClaims=[*entries(1), *again, {"name": "y", "resourceClaimTemplateName": "t"}]))

    assert {*claims_named(left)} == {"c0"}


def test_statuses_are_kept_of_the_entries_that_are() -> None:
    named = [{"name": f"e{i}", "resourceClaimName": f"p-{i}"} for i in range(300)]
    body = {"metadata": {"name": "p"}, "spec": {"resourceClaims": entries(300, "generated")}}
    left = kept.pod(PODS.decode(orjson.dumps({**body, "status": {"resourceClaimStatuses": named}})))

    assert [one.name for one in left.status.resource_claim_statuses] == [f"e{i}" for i in range(MAX_ENTRIES)]


def test_a_pod_is_found_by_each_claim_that_it_names() -> None:
    async def story(world: World) -> None:
        await world.pod("many", resourceClaims=entries(1000))
        await world.pod("few", resourceClaims=entries(2))
        await world.pod("other", resourceClaims=entries(300, "generated"))

        def naming(claim: str) -> list[str]:
            return [one.metadata.name for one in world.cluster.pods_naming((NAMESPACE, claim))]

        assert [naming(c) for c in ("c0", "c255", "c256", "c999", "c1000", "c99", "", "c")] == [
            ["many", "few"],
            ["many"],
            ["many"],
            ["many"],
            [],
            ["many"],
            [],
            [],
        ]
        assert world.cluster.pods_naming(("elsewhere", "c999")) == ()
        await world.delete(PODS, "many")
        assert (naming("c0"), naming("c999")) == (["few"], [])

    played(story)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shorten", [kept.pod, lambda whole: whole], ids=["kept", "as its scheduler sends it"])
def test_a_pod_with_too_many_claims_is_told_so_once(kind: str, shorten: Any) -> None:
    async def story(world: World) -> None:
        (claim,) = gather(world.state, shorten(pod(2000, kind)))
        assert claim.problem is not None
        assert (claim.entry, claim.problem.code) == ("e0", reasons.PARAMETERS_INVALID)
        assert claim.problem.message == (
            f"pod {NAMESPACE}/p has 2000 claims, at most 256 are allowed: have each claim request more, or divide "
            "the work among several pods"
        )
        assert len(gather(world.state, shorten(pod(MAX_ENTRIES, kind)))) == MAX_ENTRIES

    played(story)


def test_a_pod_with_very_many_claims_of_other_drivers_is_nobodys_business() -> None:
    async def story(world: World) -> None:
        await world.put(BUILTIN_TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": OTHERS}})
        foreign = [{"name": f"e{i}", "resourceClaimTemplateName": "t"} for i in range(300)]
        assert gather(world.state, kept.pod(a_pod(resourceClaims=foreign))) == ()

    played(story)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shorten", [kept.pod, lambda whole: whole], ids=["kept", "as its scheduler sends it"])
def test_a_look_at_a_pod_with_very_many_claims_costs_little(kind: str, shorten: Any) -> None:
    async def story(world: World) -> None:
        one = shorten(pod(12_000, kind))
        assert calls(lambda: gather(world.state, one)) < 200

    played(story)


def test_who_uses_a_claim_on_a_node_is_found_among_the_pods_of_that_node_alone() -> None:
    """However many pods without a node name more claims than are evaluated."""

    async def story(world: World) -> None:
        await world.pod("there", resourceClaims=entries(300), nodeName="a")
        await world.pod("elsewhere", resourceClaims=entries(300), nodeName="b")
        for number in range(100):
            await world.pod(f"waits-{number}", resourceClaims=entries(300))

        for claim in ("c0", "c299"):
            users = partial(world.cluster.pods_naming_on, (NAMESPACE, claim), "a")
            assert [one.metadata.name for one in users()] == ["there"]
            assert calls(users) < 50

    played(story)


def test_room_is_for_each_claim_that_a_pod_names() -> None:
    async def story(world: World) -> None:
        assert Requester.of(world.state, kept.pod(pod(300)), ()).claims == {f"c{i}" for i in range(300)}

    played(story)
