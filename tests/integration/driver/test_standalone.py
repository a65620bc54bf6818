"""`parley driver run tokens` beside a controller that knows nothing of tokens: they meet in API objects only."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, asynccontextmanager

import pytest
from tests.cluster.load import Bindings, assert_each_has_its_own, mixed, remove_pods
from tests.cluster.manifests import claim, pod, resource_class, resource_slice, template
from tests.cluster.namespace import Namespace
from tests.cluster.proxy import FAIR, Fate, Proxy
from tests.cluster.replicas import Replicas
from tests.cluster.watching import LIMIT, collections, until
from tests.support.conditions import condition, ready

from parley.api import reasons
from parley.api.models import ResourceClaim
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, PODS
from parley.control.objects.mirror import owner_pod_uid
from parley.kube.client import Client

pytestmark = pytest.mark.cluster

TOKENS = "tokens.parley.dev"
STRANGER = "gpu.example.com"
ONE, TWO = "one", "two"


async def make_pool(team: Namespace, size: int) -> None:
    """A class of so many tokens in all, and templates for one and two of them."""
    await team.create(resource_class("licences", TOKENS, nodePart="None", parameters={"pool": size}))
    await team.create(template(ONE, "licences"), template(TWO, "licences", count=2))


def used(claims: Iterable[ResourceClaim]) -> int:
    """How many tokens these claims hold by their records."""
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    return sum((allocation.handles[0].data or {})["count"] for allocation in allocations)


@asynccontextmanager
async def never_more_than(client: Client, team: Namespace, size: int) -> AsyncGenerator[None, None]:
    """Fails at the end of the block if claims held more tokens than that at any time within it."""
    most = 0

    async def watch() -> None:
        nonlocal most
        async with aclosing(collections(client, CLAIMS, team.name)) as states:
            async for claims in states:
                most = max(most, used(claims.values()))

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert watching.cancelled(), f"the watch of claims ended by itself: {watching}"
    assert 0 < most <= size


async def assert_each_has_its_tokens(team: Namespace, expected: Iterable[str]) -> None:
    """These pods are there, bound, and each claim made for them is allocated and reserved for nobody else."""
    await assert_each_has_its_own(team, expected, devices=False)
    mirrors = [item for item in (await team.client.list(BUILTIN_CLAIMS, team.name)).items if owner_pod_uid(item)]
    records = {item.metadata.name: item for item in (await team.client.list(CLAIMS, team.name)).items}
    assert all(records[mirror.metadata.name].status.allocation is not None for mirror in mirrors)


async def assert_all_is_free(team: Namespace, bindings: Bindings, drivers: Replicas, size: int) -> None:
    """When all pods are gone nothing is held: the driver gives the whole pool to one pod; one that begins after
    that finds nothing."""
    await remove_pods(team)
    await team.create(template("all", "licences", count=size), pod("greedy", templates={"all": "all"}))
    await bindings.all_of(["greedy"])
    await remove_pods(team)
    await until(team.client, CLAIMS, lambda seen: not used(seen.values()), "no token is held", namespace=team.name)
    assert (await (await drivers.follow()).said("driver restored"))["claims"] == 0


async def assert_told(team: Namespace, name: str, driver: str, class_name: str) -> None:
    """The pod waits, and its event and its PodScheduling say for whom, and what would help."""
    words = (
        f"no answer within 30 s from standalone driver {driver}: "
        f"start it, or correct driverName of class {class_name}"
    )
    assert await team.told(name, reasons.DRIVER_NOT_ANSWERING) == words
    assert await team.waits(name, reasons.DRIVER_NOT_ANSWERING) == words


async def test_pods_wait_for_a_driver_that_does_not_run_and_go_on_when_it_does_or_its_name_is_corrected(
    admin: Client, team: Namespace, bindings: Bindings, controllers: Replicas, drivers: Replicas
) -> None:
    await controllers.lead()
    await make_pool(team, 3)
    await team.create(resource_class("strange", STRANGER), template("odd", "strange"), claim("mine", "strange"))
    await team.create(resource_slice("fake-0", ["gpu-0"]))
    await team.create(
        pod("first", templates={"licence": TWO}), pod("misled", templates={"gpu": "odd"}), pod("plain")
    )

    await assert_told(team, "first", TOKENS, "licences")
    await assert_told(team, "misled", STRANGER, "strange")
    await bindings.all_of(["plain"])
    mine = await team.parley_claim("mine", lambda found: bool(found.status.conditions), "was looked at")
    told = condition(mine, reasons.ACCEPTED)
    assert (told.status, told.message) == (
        "True",
        f"the class is known; driver {STRANGER} will check the parameters",
    )
    assert ready(mine) == reasons.WAIT_FOR_FIRST_CONSUMER

    await admin.patch(CLASSES, "strange", {"driverName": "device.parley.dev"})
    await bindings.all_of(["misled"])
    async with never_more_than(admin, team, 3):
        await drivers.lead()
        await bindings.all_of(["first"])
        await team.create(pod("second", templates={"licence": ONE}), pod("third", templates={"licence": TWO}))
        await bindings.all_of(["second"])
        assert "of 3 tokens of class licences free, 2 wanted" in await team.waits("third", reasons.NOTHING_VIABLE)

        await team.delete(PODS, "first")
        await bindings.all_of(["third"])
    await assert_all_is_free(team, bindings, drivers, 3)


async def test_when_the_driver_is_killed_the_other_replica_goes_on(
    admin: Client, team: Namespace, bindings: Bindings, controllers: Replicas, drivers: Replicas
) -> None:
    size = 70  # tokens; those that stay want 64, all together 80
    await controllers.lead()
    driver = await drivers.lead()
    await drivers.start()
    await make_pool(team, size)
    load = mixed(60, ONE, every=0.1)

    async with never_more_than(admin, team, size):
        async with load.arriving(team):
            await bindings.count(15)
            await driver.kill()
        await bindings.all_of(load.staying)
    await assert_each_has_its_tokens(team, load.staying)
    await assert_all_is_free(team, bindings, drivers, size)


async def give_the_only_token(
    team: Namespace, bindings: Bindings, controllers: Replicas, drivers: Replicas
) -> None:
    """The pod `first` has it."""
    await controllers.lead()
    await drivers.lead()
    await make_pool(team, 1)
    await team.create(pod("first", templates={"licence": ONE}))
    await bindings.all_of(["first"])


async def test_of_a_pod_that_is_deleted_in_the_foreground_nothing_is_free_before_it_has_ended(
    admin: Client, team: Namespace, bindings: Bindings, controllers: Replicas, drivers: Replicas
) -> None:
    """The garbage collector deletes at once what the pod owns."""
    await give_the_only_token(team, bindings, controllers, drivers)

    await admin.delete(PODS, "first", team.name, propagation_policy="Foreground")
    what = "the garbage collector has deleted what it may"
    await until(admin, BUILTIN_CLAIMS, lambda claims: not claims, what, namespace=team.name)
    await team.create(pod("second", templates={"licence": ONE}))
    assert "0 of 1 token of" in await team.waits("second", reasons.NOTHING_VIABLE)
    assert (await admin.get(PODS, "first", team.name)).metadata.deletion_timestamp

    await team.delete(PODS, "first")
    await bindings.all_of(["second"])
    await assert_all_is_free(team, bindings, drivers, 1)


async def test_what_a_pod_had_that_is_forced_away_is_free(
    admin: Client, team: Namespace, bindings: Bindings, controllers: Replicas, drivers: Replicas
) -> None:
    """Its generated claim has it as its user for a moment longer."""
    await give_the_only_token(team, bindings, controllers, drivers)

    await admin.delete(PODS, "first", team.name, grace_period_seconds=0)
    await team.create(pod("second", templates={"licence": ONE}))
    await bindings.all_of(["second"])
    await assert_all_is_free(team, bindings, drivers, 1)


HELD = r"PATCH /apis/resource\.k8s\.io/v1/namespaces/[^/]+/resourceclaims/[^/]+/status"


async def test_when_the_controller_is_killed_between_selection_and_binding_its_successor_binds(
    admin: Client,
    team: Namespace,
    bindings: Bindings,
    controllers: Replicas,
    successors: Replicas,
    drivers: Replicas,
    proxy: Proxy,
) -> None:
    """What the driver recorded for two pods did not reach the scheduler yet; a third one waits for an answer."""
    await controllers.lead(proxy.kubeconfig)
    driver = await drivers.lead()
    await make_pool(team, 3)
    held = asyncio.Event()

    def judge(method: str, path: str) -> Fate:
        if not re.match(HELD, f"{method} {path}"):
            return FAIR
        held.set()
        return Fate(held=True)

    proxy.judge = judge
    async with never_more_than(admin, team, 3):
        await team.create(claim("named", "licences"), pod("named", claims={"licence": "named"}))
        await team.create(pod("generated", templates={"licence": ONE}))
        for name in ("named", "generated"):
            await team.scheduling(name, lambda found: bool(found.spec.selected_node), "has a node selected")
        async with asyncio.timeout(LIMIT):
            await held.wait()
        driver.freeze()
        await team.create(pod("late", templates={"licence": ONE}))
        await controllers.kill()
        driver.thaw()

        await successors.lead()
        await bindings.all_of(["named", "generated", "late"])
    await proxy.reopen()
    await team.delete(PODS, "named")
    await team.parley_claim("named", lambda found: found.status.allocation is None, "holds nothing")
    await assert_each_has_its_tokens(team, ["generated", "late"])
    await assert_all_is_free(team, bindings, drivers, 3)


async def test_the_question_goes_on_when_the_controllers_only_answer_leaves_it(
    team: Namespace, bindings: Bindings, controllers: Replicas
) -> None:
    """Of a list from which the last entry is taken by an apply the API server leaves null."""
    await controllers.lead()
    await team.create(
        resource_slice("fake-0", ["gpu-0"]), resource_class("gpus", "device.parley.dev", shareable=True)
    )
    await team.create(template("odd", "strange"), claim("common", "gpus"))
    await team.create(pod("asks", templates={"odd": "odd"}, claims={"gpu": "common"}))
    await team.waits("asks", reasons.CLASS_NOT_FOUND)
    await team.create(resource_class("strange", STRANGER))
    await team.scheduling("asks", lambda s: [e.name for e in s.status.claims] == ["gpu"], "has one answer")

    await team.create(pod("takes", claims={"gpu": "common"}))
    await bindings.all_of(["takes"])
    without = await team.scheduling("asks", lambda s: not s.status.claims, "has no answer any more")
    assert [asked.name for asked in without.spec.claims] == ["odd"]
    await team.client.patch(CLASSES, "strange", {"driverName": "device.parley.dev"})
    assert "0 of 1 device free" in await team.waits("asks", reasons.NOTHING_VIABLE)
