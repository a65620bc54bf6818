"""What the native path does for pods, told on the in-memory cluster."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import condition, ready
from tests.support.faults import FaultClient

from parley.api.opaque import read
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, CLASSES, NODES, PODS, TEMPLATES
from parley.kube.client import Call, Conflict

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

NAMESPACE = "default"


async def two_nodes(world: World) -> None:
    await world.add_node("a", devices=1)
    await world.add_node("b", devices=2)
    await world.add_class()
    await world.add_template()
    world.start_parley()


def test_a_pod_with_two_claims_lands_where_both_are(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_pod("p", "one", "one")
        await world.settle()
        assert await world.node_of("p") == "b"
        assert await world.devices() == {("b", "gpu-0"): 1, ("b", "gpu-1"): 1}
        scheduling = await world.scheduling("p")
        assert scheduling.spec.selected_node == "b"
        assert set(scheduling.spec.candidate_nodes) == {"a", "b"}
        assert scheduling.status.waiting_for == ""
        assert {claim.name: claim.viable_nodes for claim in scheduling.status.claims} == {
            "gpu-0": ("b",),
            "gpu-1": ("b",),
        }
        assert (
            scheduling.status.claims[0].reason == "a: 1 device free, but not for all 2 claims of the pod together"
        )

    play(scenario)


def test_a_deleted_pod_frees_its_devices_for_the_next(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        for round_ in range(3):
            await world.add_pod(f"p{round_}", "one", "one")
            await world.settle()
            assert await world.node_of(f"p{round_}") == "b"
            await world.delete_pod(f"p{round_}")
            await world.settle()
            assert not await world.mirrors()
        assert world.controller is not None
        assert len(world.controller.ledger) == 0

    play(scenario)


def test_ten_pods_over_three_devices_run_three_at_a_time(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        for i in range(10):
            await world.add_pod(f"p{i}", "one")
        await world.settle()
        finished: set[str] = set()
        for _ in range(4):
            running = [f"p{i}" for i in range(10) if await world.node_of(f"p{i}") and f"p{i}" not in finished]
            waiting = [f"p{i}" for i in range(10) if not await world.node_of(f"p{i}")]
            assert len(running) == min(3, 10 - len(finished))
            assert all(count == 1 for count in (await world.devices()).values())
            for name in waiting:
                scheduling = await world.scheduling(name)
                assert scheduling.status.waiting_for == "NothingViable"
                assert scheduling.status.message == (
                    "0 of 2 nodes are available: node a: claim gpu-0: 0 of 1 device free, 1 wanted; "
                    "node b: claim gpu-0: 0 of 2 devices free, 1 wanted. "
                    "Remedy: free resources, request less, or add nodes that have what is requested"
                )
                assert [reason for reason, _ in await world.events_on(name)] == ["NothingViable"]
            for name in running:
                await world.finish_pod(name)
                finished.add(name)
            await world.settle()
        assert len(finished) == 10

    play(scenario)


def test_a_node_that_the_scheduler_refuses_is_left_and_the_scheduler_chooses(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_node("c", devices=1)
        await world.create(
            PODS,
            {
                "metadata": {"name": "grump", "namespace": NAMESPACE, "labels": {"app": "grump"}},
                "spec": {"nodeName": "a", "containers": [{"name": "main", "image": "none"}]},
            },
        )
        term = {"labelSelector": {"matchLabels": {"app": "grump"}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        for i in range(3):
            await world.add_pod(f"p{i}", "one", affinity=affinity)
        await world.settle(400)
        nodes = sorted([await world.node_of(f"p{i}") for i in range(3)])
        assert nodes == ["b", "b", "c"]
        assert all(count == 1 for count in (await world.devices()).values())

    play(scenario)


@pytest.mark.scheduling_paths("native")  # offers are made by the native path alone
def test_a_class_may_ask_that_the_scheduler_chooses_from_the_start(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_class("exact", placement="Exact")
        await world.add_template("exact", "exact")
        await world.add_pod("p", "exact", "exact")
        await world.settle()
        assert await world.node_of("p") == "b"
        for mirror in await world.mirrors():
            assert read(mirror.status.devices[0].data)["devices"][0]["pool"] == "b"
        assert await world.devices() == {("b", "gpu-0"): 1, ("b", "gpu-1"): 1}

    play(scenario)


def test_a_pod_bound_by_others_is_served_where_it_is(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_pod("p", "one", nodeName="a")
        await world.settle()
        assert await world.devices() == {("a", "gpu-0"): 1}
        await world.add_pod("q", "one", nodeName="a")
        await world.settle()
        assert await world.devices() == {("a", "gpu-0"): 1}
        assert (await world.scheduling("q")).status.message.startswith(
            "the pod is bound to node a: claim gpu-0: 0 of 1 device free, 1 wanted."
        )

    play(scenario)


def test_a_named_claim_serves_one_pod_after_the_other(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_claim("disk", count=2)
        await world.add_pod("p", claims=["disk"])
        await world.settle()
        await world.add_pod("q", claims=["disk"])
        await world.settle()
        claim = await world.claim("disk")
        assert ready(claim) == "Ready"
        assert [user.name for user in claim.status.reserved_for] == ["p"]
        assert (await world.scheduling("q")).status.waiting_for == "ClaimInUse"
        assert (await world.scheduling("q")).status.message == (
            "claim default/disk is not shareable and pod default/p uses it: "
            "wait until that ends, or use a template"
        )
        await world.delete_pod("p")
        await world.settle()
        assert await world.node_of("q") == "b"
        await world.delete_pod("q")
        await world.settle()
        claim = await world.claim("disk")
        assert (ready(claim), claim.status.allocation) == ("WaitForFirstConsumer", None)
        await world.client.delete(CLAIMS, "disk", NAMESPACE)
        await world.settle()
        assert not (await world.client.list(CLAIMS)).items
        assert not await world.mirrors()

    play(scenario)


def test_a_shareable_claim_serves_several_pods_on_its_node(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_class("shared", shareable=True)
        await world.add_claim("disk", "shared", count=2)
        for name in ("p", "q", "r"):
            await world.add_pod(name, claims=["disk"])
        await world.settle()
        assert [await world.node_of(name) for name in ("p", "q", "r")] == ["b", "b", "b"]
        assert {user.name for user in (await world.claim("disk")).status.reserved_for} == {"p", "q", "r"}
        for name in ("p", "q", "r"):
            assert await world.devices() == {("b", "gpu-0"): 1, ("b", "gpu-1"): 1}
            await world.delete_pod(name)
            await world.settle()
        assert (await world.claim("disk")).status.allocation is None

    play(scenario)


def test_a_running_pods_claim_that_somebody_cleared_is_put_right(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_claim("disk")
        await world.add_pod("p", "one", claims=["disk"])
        await world.settle()
        before = await world.devices()
        for mirror in await world.mirrors():
            body = {"status": {"allocation": None, "reservedFor": None}}
            await world.client.patch(BUILTIN_CLAIMS, mirror.metadata.name, body, NAMESPACE, subresource="status")
        await world.settle()
        assert await world.devices() == before
        uid = (await world.pod("p")).metadata.uid
        for mirror in await world.mirrors():
            assert [user.uid for user in mirror.status.reserved_for] == [uid]

    play(scenario)


def test_a_running_pods_generated_claim_that_somebody_deleted_gets_the_same_devices(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_pod("p", "one", "one")
        await world.settle()
        before = await world.devices()
        for mirror in await world.mirrors():
            await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, NAMESPACE)
        await world.add_pod("q", "one", "one")
        await world.settle()
        assert await world.node_of("q") == ""
        assert await world.devices() == before
        await world.delete_pod("p")
        await world.settle()
        assert await world.node_of("q") == "b"

    play(scenario)


def test_a_mirror_that_somebody_deletes_is_made_anew(play: Any) -> None:
    async def scenario(world: World) -> None:
        await two_nodes(world)
        await world.add_claim("disk")
        await world.settle()
        first = await world.mirror("disk")
        await world.client.delete(BUILTIN_CLAIMS, "disk", NAMESPACE)
        await world.client.delete(BUILTIN_TEMPLATES, "one", NAMESPACE)
        await world.settle()
        second = await world.mirror("disk")
        assert first is not None
        assert second is not None
        assert first.metadata.uid != second.metadata.uid
        await world.add_pod("p", "one", claims=["disk"])
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


@pytest.mark.scheduling_paths("native")  # the words about nodes that a scheduler of its own filters
def test_resources_taints_and_suitable_nodes_decide_about_candidates(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_node("b", devices=1, labels={"zone": "west"})
        await world.add_node("c", devices=1, labels={"zone": "west"})
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["west"]}]}
        await world.add_class(suitableNodes={"nodeSelectorTerms": [term]})
        await world.add_template()
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        world.start_parley()
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "c"
        await world.add_pod("q", "one")
        await world.settle()
        assert (await world.scheduling("q")).status.message == (
            "0 of 3 nodes are available: node a: not among the suitableNodes of class gpu; node b: cordoned; "
            "node c: claim gpu-0: 0 of 1 device free, 1 wanted. "
            "Remedy: free resources, request less, or add nodes that have what is requested"
        )
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": None}})
        await world.settle()
        assert await world.node_of("q") == "b"

    play(scenario)


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


def test_a_pod_that_fits_nowhere_else_does_not_make_claims_go_in_circles(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_node("b", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        term = {"labelSelector": {"matchLabels": {"app": "grump"}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        for node in ("a", "b"):
            await world.create(
                PODS,
                {
                    "metadata": {"name": f"grump-{node}", "namespace": NAMESPACE, "labels": {"app": "grump"}},
                    "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
                },
            )
        await world.add_pod("p", "one", affinity=affinity)
        await world.settle(2.0)
        before = int(world.server.resource_version)
        await asyncio.sleep(3600)
        assert int(world.server.resource_version) - before < 300
        assert await world.node_of("p") == ""
        await world.delete_pod("grump-b")
        await world.settle()
        assert await world.node_of("p") == "b"

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


def test_pods_that_want_the_same_beside_different_shared_claims_do_not_wait_in_one_line(play: Any) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, devices=2, labels={"name": node})
            term = {"matchExpressions": [{"key": "name", "operator": "In", "values": [node]}]}
            await world.add_class(node, shareable=True, suitableNodes={"nodeSelectorTerms": [term]})
            await world.add_claim(f"on-{node}", node)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        for node in ("a", "b"):
            await world.add_pod(f"holds-{node}", "one", claims=[f"on-{node}"])
        await world.settle()
        for node in ("a", "b"):
            await world.add_pod(f"waits-{node}", "one", claims=[f"on-{node}"])
        await world.settle()
        before = int(world.server.resource_version)
        await world.settle(600)
        assert int(world.server.resource_version) == before
        await world.delete_pod("holds-b")
        await world.settle()
        assert await world.node_of("waits-a") == ""
        assert await world.node_of("waits-b") == "b"

    play(scenario)


@pytest.mark.scheduling_paths("native")  # only its scheduler clears an allocation
def test_a_claim_that_could_not_be_taken_back_is_still_put_right_later(play: Any) -> None:
    failed = asyncio.Event()

    def fail_once(call: Call) -> None:
        clears = call.resource == BUILTIN_CLAIMS and "allocation" in (call.body or {}).get("status", {})
        if clears and call.body["status"]["allocation"] is None and not failed.is_set():
            failed.set()
            raise Conflict(409, "Conflict", "injected")

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=2)
        await world.add_node("b")
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), before=fail_once))
        grump = {"metadata": {"name": "grump", "namespace": NAMESPACE, "labels": {"app": "grump"}}}
        await world.create(
            PODS, {**grump, "spec": {"nodeName": "a", "containers": [{"name": "m", "image": "none"}]}}
        )
        term = {"labelSelector": {"matchLabels": {"app": "grump"}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await world.add_pod("p", "one", "one", affinity=affinity)
        await failed.wait()
        await world.delete_pod("grump")
        await world.settle(400)
        assert await world.node_of("p") == "a"
        for mirror in await world.mirrors():
            body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
            await world.client.patch(BUILTIN_CLAIMS, mirror.metadata.name, body, NAMESPACE, subresource="status")
        await world.settle()
        assert await world.devices() == {("a", "gpu-0"): 1, ("a", "gpu-1"): 1}

    play(scenario)
