"""Parley is removed from a cluster: what is in use is named, and nothing that is left terminates for ever."""

from contextlib import suppress
from typing import Any

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, World, played

from parley.api.names import FINALIZER
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, LEASES, TEMPLATES, Resource
from parley.control import removal
from parley.control.removal import StillLeads, Use, in_use
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Call, Client, NotFound

TOKENS = "tokens.parley.dev"
KINDS: tuple[Resource[Any], ...] = (CLAIMS, BUILTIN_CLAIMS, TEMPLATES, BUILTIN_TEMPLATES)


async def in_a_cluster(world: World) -> None:
    """Pods with a generated claim, a named one, a standalone driver's; a claim allocated at once, one unused."""
    world.start_parley()
    world.start_driver(TokensDriver())
    await world.add_node("a", 5)
    await world.add_class()
    await world.add_class("licences", driverName=TOKENS, parameters={"pool": 3})
    await world.add_template()
    for name, class_, mode in (
        ("named", "gpu", ""),
        ("licence", "licences", ""),
        ("kept", "gpu", "Immediate"),
        ("idle", "gpu", ""),
    ):
        await world.add_claim(name, class_, mode)
    await world.settle()
    await world.add_pod("one", "one")
    await world.add_pod("two", claims=["named"])
    await world.add_pod("three", claims=["licence"])
    await world.settle()


async def finalizers(world: World) -> set[str]:
    """All that are not Kubernetes' own."""
    listed = [await world.client.list(kind.untyped()) for kind in KINDS]
    everything = [it for listing in listed for it in listing.items]
    return {f for it in everything for f in it["metadata"].get("finalizers") or () if "kubernetes.io" not in f}


async def all_gone(world: World) -> list[str]:
    """Delete all claims and templates; the names of those that stay."""
    left: list[str] = []
    for kind in KINDS:
        for it in (await world.client.list(kind.untyped())).items:
            await world.client.delete(kind, it["metadata"]["name"], it["metadata"]["namespace"])
    for kind in KINDS:
        left += [it["metadata"]["name"] for it in (await world.client.list(kind.untyped())).items]
    return left


def silent(_: str) -> None:
    """Nobody listens."""


def test_claims_in_use_are_named_with_their_pods() -> None:
    async def scenario(world: World) -> None:
        await in_a_cluster(world)
        (generated,) = [m.metadata.name for m in await world.mirrors() if m.metadata.name.startswith("one-")]

        found = await removal.uses(world.client)

        assert set(found) == {
            Use(NAMESPACE, generated, ("one",)),
            Use(NAMESPACE, "named", ("two",)),
            Use(NAMESPACE, "licence", ("three",)),
            Use(NAMESPACE, "kept"),
        }
        assert [use.sentence() for use in found if not use.name.startswith("one-")] == [
            f"claim {NAMESPACE}/kept is allocated, and no pod uses it: delete the claim",
            f"claim {NAMESPACE}/licence is used by pod three: delete the pod",
            f"claim {NAMESPACE}/named is used by pod two: delete the pod",
        ]

    played(scenario)


def test_when_pods_and_allocated_claims_are_gone_nothing_is_in_use() -> None:
    async def scenario(world: World) -> None:
        await in_a_cluster(world)
        for pod in ("one", "two", "three"):
            await world.delete_pod(pod)
        await world.client.delete(CLAIMS, "kept", NAMESPACE)
        await world.settle()

        assert await removal.uses(world.client) == []

    played(scenario)


def test_what_a_node_may_have_prepared_still_is_in_use() -> None:
    release = {"spec": {"claim": {"namespace": "team", "name": "it"}, "nodeName": "a"}}

    (use,) = in_use([], [release])

    assert use.sentence() == (
        "claim team/it may still be prepared on a: wait until the node plugin confirms that it is not"
    )


def test_a_shared_claim_tells_of_all_its_pods_once() -> None:
    status = {"allocation": {}, "reservedFor": [{"name": "two"}, {"name": "one"}]}
    claim: dict[str, Any] = {"metadata": {"namespace": "team", "name": "it"}, "status": status}

    (use,) = in_use([claim, claim], [])

    assert use.sentence() == "claim team/it is used by pods one, two: delete the pods"


@pytest.mark.parametrize("used", [False, True])
def test_after_the_release_no_finalizer_is_left_and_everything_can_be_deleted(used: bool) -> None:
    async def scenario(world: World) -> None:
        await in_a_cluster(world)
        if not used:
            for pod in ("one", "two", "three"):
                await world.delete_pod(pod)
            await world.settle()
        await world.stop()
        assert FINALIZER in await finalizers(world)

        told: list[str] = []
        changed = await removal.release(world.client, told.append)

        assert await finalizers(world) == set()
        assert changed == len(told) > 0
        assert await all_gone(world) == []

    played(scenario)


def test_what_a_pod_uses_stays_and_what_nobody_uses_goes() -> None:
    async def scenario(world: World) -> None:
        await in_a_cluster(world)
        before = {m.metadata.name for m in await world.mirrors()}
        await world.stop()

        await removal.release(world.client, silent)

        assert before - {m.metadata.name for m in await world.mirrors()} == {"idle"}
        assert (await world.claim("named")).status.allocation is not None
        assert len((await world.client.list(BUILTIN_TEMPLATES)).items) == 0

    played(scenario)


def test_a_second_time_there_is_nothing_to_do() -> None:
    async def scenario(world: World) -> None:
        await in_a_cluster(world)
        await world.stop()
        await removal.release(world.client, silent)

        assert await removal.release(world.client, silent) == 0

    played(scenario)


def test_what_is_installed_again_takes_over_the_claims_that_were_kept() -> None:
    async def scenario(world: World) -> None:
        await in_a_cluster(world)
        await world.crash()
        await removal.release(world.client, silent)

        world.start_parley()
        await world.settle()
        await world.add_pod("four", claims=["idle"])
        await world.add_pod("five", "one")
        await world.settle()

        assert await world.node_of("four") == await world.node_of("five") == "a"
        assert max((await world.devices()).values()) == 1
        assert FINALIZER in (await world.claim("idle")).metadata.finalizers

    played(scenario)


def test_what_is_in_use_while_parley_is_away_is_kept_from_being_deleted_afterwards() -> None:
    async def scenario(world: World) -> None:
        await in_a_cluster(world)
        await world.crash()
        await removal.release(world.client, silent)

        world.start_parley()
        world.start_driver(TokensDriver())
        await world.settle()
        for name in ("named", "licence", "kept"):
            await world.client.delete(CLAIMS, name, NAMESPACE)
            await world.client.delete(BUILTIN_CLAIMS, name, NAMESPACE)
        await world.settle()

        for name in ("named", "licence"):
            assert (await world.claim(name)).status.reserved_for
        assert {use.name for use in await removal.uses(world.client)} >= {"named", "licence"}
        for pod in ("two", "three"):
            await world.delete_pod(pod)
        await world.settle()
        left = {claim.metadata.name for claim in (await world.client.list(CLAIMS)).items}
        assert left & {"named", "licence", "kept"} == set()

    played(scenario)


def test_claims_of_others_are_left_alone() -> None:
    async def scenario(world: World) -> None:
        spec = {"devices": {"requests": [{"name": "it", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
        meta = {"name": "theirs", "namespace": NAMESPACE, "finalizers": ["gpu.example.com/deletion-protection"]}
        await world.create(BUILTIN_CLAIMS, {"metadata": meta, "spec": spec})

        assert await removal.uses(world.client) == []
        assert await removal.release(world.client, silent) == 0

    played(scenario)


def lease(holder: str) -> dict[str, Any]:
    return {
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    }


@pytest.mark.parametrize(("holder", "at_least"), [("", 0), ("gone", 15)])
def test_a_lease_that_nobody_renews_is_waited_for_no_longer_than_it_holds(holder: str, at_least: float) -> None:
    async def scenario(world: World) -> None:
        body = {"metadata": {"name": "it", "namespace": NAMESPACE}, **lease(holder)}
        await world.create(LEASES, body)
        before = world.clock().timestamp()

        await removal.wait_until_nobody_leads(world.client, NAMESPACE, "it", 60)

        assert at_least <= world.clock().timestamp() - before <= at_least + 2

    played(scenario)


def test_a_controller_that_leads_still_is_named() -> None:
    async def scenario(world: World) -> None:
        body = {"metadata": {"name": "it", "namespace": NAMESPACE}, **lease("parley-1")}
        await world.create(LEASES, {**body, "spec": {**body["spec"], "leaseDurationSeconds": 3600}})

        with pytest.raises(StillLeads) as raised:
            await removal.wait_until_nobody_leads(world.client, NAMESPACE, "it", 60)

        assert str(raised.value) == (
            f"parley-1 still leads (Lease {NAMESPACE}/it), and would set finalizers again: "
            "remove the controller first, or name Parley's own namespace if that is another's Lease"
        )

    played(scenario)


class Busy(Client):
    """Somebody else changes each object once, just before it is patched."""

    def __init__(self, transport: Client) -> None:
        super().__init__(transport)
        self._before = transport
        self._seen: set[str] = set()

    async def request(self, call: Call) -> bytes:
        if call.verb == "patch" and call.name not in self._seen:
            self._seen.add(call.name)
            labels = {"metadata": {"labels": {"changed": "meanwhile"}}}
            await self._before.patch(call.resource, call.name, labels, call.namespace)
        return await super().request(call)


def test_what_changes_meanwhile_is_read_again() -> None:
    async def scenario(world: World) -> None:
        await in_a_cluster(world)
        await world.stop()

        await removal.release(Busy(world.client), silent)

        assert await finalizers(world) == set()

    played(scenario)


class Leaving(Client):
    """Its namespace is being deleted: a built-in claim that lost its finalizer is gone at once."""

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if call.verb == "patch" and call.resource.api_version == BUILTIN_CLAIMS.api_version:
            with suppress(NotFound):
                await self.delete(BUILTIN_CLAIMS, call.name, call.namespace)
        return answer


def test_what_goes_when_it_has_lost_its_finalizer_counts() -> None:
    async def scenario(world: World) -> None:
        await world.add_class()
        world.start_parley()
        await world.add_claim("mine")
        await world.settle()
        await world.stop()
        said: list[str] = []

        assert await removal.release(Leaving(world.client), said.append) == len(said) == 2
        assert said[-1] == f"ResourceClaim.resource.k8s.io {NAMESPACE}/mine: removed {FINALIZER} and deleted"

    played(scenario)
