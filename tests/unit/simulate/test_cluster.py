"""Whole negotiations in a simulated cluster: where pods end up, and what they hold, wait for and give back."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.containers import using

from parley.api.resources import BUILTIN_CLAIMS, NODES, PODS, RESOURCE_SLICES
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import NotFound
from parley.scheduler.settings import ControllerSettings
from parley.simulate import virtual_time
from parley.simulate.cluster import SimulatedCluster
from parley.simulate.manifests import read
from parley.simulate.recording import PodRecord

Body = dict[str, Any]
Then = Callable[[SimulatedCluster], Awaitable[None]]
Play = Callable[..., dict[str, PodRecord]]


def node(name: str, **spec: Any) -> Body:
    labels = {"kubernetes.io/hostname": name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}


def devices(node: str, *names: str, slices: int = 1) -> Body:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-devices"},
        "spec": {
            "driver": "device.parley.dev",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": name, "capacity": {"slices": {"value": str(slices)}}} for name in names],
        },
    }


def parley(kind: str, name: str, **fields: Any) -> Body:
    return {"apiVersion": "parley.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, **fields}


def class_(**fields: Any) -> Body:
    return parley("ResourceClass", "gpu", driverName="device.parley.dev", **fields)


def asking(**parameters: Any) -> Body:
    return {"resourceClassName": "gpu", "parameters": parameters}


def template(name: str = "one", **parameters: Any) -> Body:
    return parley("ResourceClaimTemplate", name, spec={"spec": asking(**parameters)})


def claim(name: str, **parameters: Any) -> Body:
    return parley("ResourceClaim", name, spec=asking(**parameters))


def pod(name: str, *templates: str, claims: Sequence[str] = (), run: str = "", **spec: Any) -> Body:
    entries = [{"name": entry, "resourceClaimTemplateName": entry} for entry in templates]
    entries += [{"name": entry, "resourceClaimName": entry} for entry in claims]
    annotations = {"simulate.parley.dev/run-seconds": run} if run else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": annotations},
        "spec": {
            "containers": using([{"name": "main", "resources": {"requests": {"cpu": "100m"}}}], entries),
            "resourceClaims": entries,
            **spec,
        },
    }


def away_from(*apps: str) -> Body:
    expression = {"key": "app", "operator": "In", "values": list(apps)}
    term = {"labelSelector": {"matchExpressions": [expression]}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """What became of the pods: objects are created, everything settles, `then` happens, everything settles."""

    def play(
        *bodies: Body, then: Sequence[Then] = (), settings: ControllerSettings | None = None
    ) -> dict[str, PodRecord]:
        (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(bodies))

        async def story() -> dict[str, PodRecord]:
            async with SimulatedCluster([DeviceDriver(), TokensDriver()], settings) as cluster:
                await cluster.apply(read([tmp_path / "objects.yaml"]))
                assert await cluster.settle()
                for change in then:
                    await change(cluster)
                    assert await cluster.settle()
                return {record.name: record for record in cluster.recording.pods}

        return virtual_time.run(story())

    return play


def steps(record: PodRecord) -> list[str]:
    return [step.text for step in record.steps]


def at(record: PodRecord, text: str) -> float:
    return next(step.at for step in record.steps if step.text == text)


def held(record: PodRecord) -> dict[str, tuple[str, ...]]:
    return {claim.entry: claim.devices for claim in record.claims.values()}


def test_a_pod_gets_its_device_and_runs(play: Play) -> None:
    trainer = play(node("n1"), node("n2"), devices("n2", "gpu-0"), class_(), template(), pod("p", "one"))["p"]

    assert trainer.node == "n2"
    assert held(trainer) == {"one": ("gpu-0",)}
    assert trainer.claims["one"].claim.startswith("p-one-")
    assert trainer.pod.status.phase == "Running"
    assert steps(trainer) == ["created", "claim one: allocated gpu-0", "bound to n2", "running"]


def test_each_node_that_was_no_candidate_has_its_own_reason(play: Play) -> None:
    full, cordoned = node("n3"), node("n4", unschedulable=True)
    full["status"] = {"allocatable": {"pods": "0"}}
    trainer = play(
        *(node("n2"), full, cordoned),
        *(devices("n2", "gpu-0"), devices("n3", "gpu-0"), devices("n4", "gpu-0")),
        *(class_(), template(), pod("p", "one")),
    )["p"]

    assert (trainer.node, trainer.left_out) == ("n2", {"n3": "no pod slots left", "n4": "cordoned"})


def test_nodes_that_no_driver_would_have_are_not_left_out_because_others_are_viable(play: Play) -> None:
    nodes = [each for i in range(10) for each in (node(f"n{i}"), devices(f"n{i}", "gpu-0"))]
    waiting = play(*nodes, class_(), template(count=2), pod("p", "one"))["p"]

    assert waiting.round is not None
    others = {f"n{i}" for i in range(10)}.difference(waiting.round.spec.candidate_nodes)
    assert len(others) == 2
    assert waiting.left_out == dict.fromkeys(others, "no other node is viable either")


def test_a_pod_is_asked_about_where_its_other_claim_is(play: Play) -> None:
    async def add(cluster: SimulatedCluster) -> None:
        await cluster.client.create(PODS, pod("later", "one", claims=["ours"]), "default")

    records = play(
        *(node("n1"), node("n2"), devices("n1", "gpu-0", "gpu-1"), devices("n2", "gpu-0", "gpu-1")),
        *(class_(shareable=True), template(), claim("ours")),
        pod("first", claims=["ours"]),
        then=[add],
    )

    first, later = records["first"], records["later"]
    (elsewhere,) = {"n1", "n2"} - {first.node}
    assert later.left_out == {elsewhere: "a claim of the pod is allocated elsewhere"}


def test_a_pod_without_claims_is_just_scheduled(play: Play) -> None:
    web = play(node("n1"), pod("web"))["web"]

    assert (web.node, web.pod.status.phase, web.round) == ("n1", "Running", None)


def test_a_pod_that_nothing_suits_waits_and_both_sides_say_why(play: Play) -> None:
    giant = play(node("n1"), devices("n1", "gpu-0"), class_(), template(count=2), pod("p", "one"))["p"]

    assert giant.node == ""
    assert giant.reason.startswith(
        "NothingViable: 0 of 1 node is available: node n1: claim one: 1 of 1 device free"
    )
    assert [condition.message for condition in giant.pod.status.conditions] == [
        "0/1 nodes are available: request exclusive: device class being-negotiated.parley.dev does not exist."
    ]


def test_a_node_added_later_serves_the_pod_that_waits(play: Play) -> None:
    async def add(cluster: SimulatedCluster) -> None:
        status = {"allocatable": {"cpu": "4", "pods": "10"}}
        await cluster.client.create(NODES, {**node("n2"), "status": status})
        await cluster.client.create(RESOURCE_SLICES, devices("n2", "gpu-0"))

    waiting = play(node("n1"), class_(), template(), pod("p", "one"), then=[add])["p"]

    assert waiting.node == "n2"


def test_two_claims_come_from_one_node_or_not_at_all(play: Play) -> None:
    nodes = [node("n1"), node("n2"), devices("n1", "gpu-0"), devices("n2", "gpu-0", "gpu-1")]
    both = play(*nodes, class_(), template("a"), template("b"), pod("p", "a", "b"))["p"]

    assert both.node == "n2"
    assert sorted(device for names in held(both).values() for device in names) == ["gpu-0", "gpu-1"]


def test_a_finished_pod_gives_its_device_to_the_next(play: Play) -> None:
    pods = play(
        node("n1"),
        devices("n1", "gpu-0"),
        class_(),
        template(),
        pod("a", "one", run="20"),
        pod("b", "one", run="20"),
    )

    assert [record.pod.status.phase for record in pods.values()] == ["Succeeded", "Succeeded"]
    assert [held(record) for record in pods.values()] == [{"one": ("gpu-0",)}] * 2
    assert sorted(at(record, "bound to n1") for record in pods.values()) == [0, 20]


def test_a_deleted_pod_leaves_no_claim_and_no_device_behind(play: Play) -> None:
    async def delete(cluster: SimulatedCluster) -> None:
        await cluster.client.delete(PODS, "first", "default")

    async def no_claim_of_first(cluster: SimulatedCluster) -> None:
        claims = (await cluster.client.list(BUILTIN_CLAIMS)).items
        assert [claim.metadata.owner_references[0].name for claim in claims] == ["second"]
        with pytest.raises(NotFound):
            await cluster.client.get(PODS, "first", "default")

    objects = [node("n1"), devices("n1", "gpu-0"), class_(), template(), pod("first", "one"), pod("second", "one")]
    pods = play(*objects, then=[delete, no_claim_of_first])

    assert steps(pods["first"])[-1] == "gone"
    assert pods["second"].node == "n1"


def test_a_named_claim_serves_one_pod_after_the_other(play: Play) -> None:
    pods = play(
        node("n1"),
        devices("n1", "gpu-0", "gpu-1"),
        class_(),
        claim("gate"),
        pod("first", claims=["gate"], run="20"),
        pod("second", claims=["gate"]),
    )

    assert any(step.text.startswith("waits: ClaimInUse") for step in pods["second"].steps)
    assert 20 <= at(pods["second"], "bound to n1") <= 21, "the scheduler may try too early, and backs off then"


def test_a_shareable_claim_serves_several_pods_on_its_node(play: Play) -> None:
    objects = [node("n1"), node("n2"), devices("n2", "gpu-0"), class_(shareable=True), claim("gate")]
    pods = play(*objects, pod("a", claims=["gate"]), pod("b", claims=["gate"]))

    assert [pods[name].node for name in "ab"] == ["n2", "n2"]
    assert [held(pods[name]) for name in "ab"] == [{"gate": ("gpu-0",)}] * 2


def test_the_pods_of_a_run_share_a_claim_that_their_template_makes(play: Play) -> None:
    run, uid = "tekton.dev/pipelineRun", "tekton.dev/pipelineRunUID"
    owner = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "nameLabel": run, "uidLabel": uid}
    shared = {"spec": asking(), "sharedBy": {"podLabel": run, "owner": owner}}
    tasks = [
        {**body, "metadata": {**body["metadata"], "labels": {run: "7", uid: "u-7"}}}
        for body in (pod(name, claims=["src-7"]) for name in "ab")
    ]
    objects = [node("n1"), node("n2"), devices("n2", "gpu-0"), class_(shareable=True)]
    pods = play(*objects, parley("ResourceClaimTemplate", "src", spec=shared), *tasks)

    assert [pods[name].node for name in "ab"] == ["n2", "n2"]
    assert [held(pods[name]) for name in "ab"] == [{"src-7": ("gpu-0",)}] * 2


def test_a_node_that_only_the_scheduler_refuses_is_left_for_another(play: Play) -> None:
    nodes = [node("n1"), node("n2"), devices("n1", "gpu-0", "gpu-1"), devices("n2", "gpu-0")]
    web = pod("web", nodeName="n1")
    picky = play(*nodes, class_(), template(), web, pod("p", "one", affinity=away_from("web")))["p"]

    assert picky.node == "n2"
    assert held(picky) == {"one": ("gpu-0",)}


def test_a_pod_refused_everywhere_holds_nothing_while_it_waits(play: Play) -> None:
    web = pod("web", nodeName="n1")
    picky = pod("p", "one", affinity=away_from("web"))
    pods = play(node("n1"), node("n2"), devices("n1", "gpu-0"), class_(), template(), web, picky)

    assert pods["p"].node == ""
    assert pods["p"].reason.startswith("SchedulerRefused: ")


def test_an_exact_class_lets_the_scheduler_choose(play: Play) -> None:
    nodes = [node("n1"), node("n2"), devices("n1", "gpu-0"), devices("n2", "gpu-0")]
    placed = play(*nodes, class_(placement="Exact"), template(), pod("web", nodeName="n1"), pod("p", "one"))["p"]

    assert placed.node == "n2"
    assert held(placed) == {"one": ("gpu-0",)}
    told = [text for text in steps(placed) if not text.startswith("waits: ")]
    assert told[1].startswith("claim one: offered to the scheduler on n")
    assert told[2:] == ["the scheduler chooses n2", "claim one: allocated gpu-0", "bound to n2", "running"]


@pytest.mark.parametrize(
    ("scope", "told"),
    [("Node", "claim one: allocated on node n1"), ("Cluster", "claim one: allocated and usable on every node")],
)
def test_a_claim_for_which_no_device_is_named_is_recorded_as_allocated(play: Play, scope: str, told: str) -> None:
    pool = {"driverName": "tokens.parley.dev", "nodePart": "None", "parameters": {"pool": 1, "scope": scope}}
    placed = play(node("n1"), parley("ResourceClass", "gpu", **pool), template(), pod("p", "one"))["p"]

    assert steps(placed) == ["created", told, "bound to n1", "running"]


def test_a_pod_bound_by_others_gets_its_claim_there(play: Play) -> None:
    objects = [node("n1"), node("n2"), devices("n1", "gpu-0"), devices("n2", "gpu-0"), class_(), template()]
    placed = play(*objects, pod("p", "one", nodeName="n2"))["p"]

    assert (placed.node, placed.pod.status.phase) == ("n2", "Running")


def test_a_bound_pod_without_what_it_asked_for_does_not_start(play: Play) -> None:
    placed = play(node("n1"), class_(), template(), pod("p", "one", nodeName="n1"))["p"]

    assert placed.pod.status.phase == "Pending"


def test_gated_pods_and_those_of_other_schedulers_are_left_alone(play: Play) -> None:
    pods = play(node("n1"), pod("gated", schedulingGates=[{"name": "g"}]), pod("other", schedulerName="x"))

    assert [pods[name].node for name in ("gated", "other")] == ["", ""]


def test_a_part_that_fails_ends_the_simulation(tmp_path: Path) -> None:
    class Defect(BaseException):
        """What is not contained, as a driver's Exceptions are."""

    class Broken(DeviceDriver):
        def observe(self, old: object, new: object) -> bool:
            raise Defect("broken driver")

    async def story() -> None:
        (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all([devices("n1", "gpu-0")]))
        async with SimulatedCluster([Broken()]) as cluster:
            await cluster.apply(read([tmp_path / "objects.yaml"]))
            await cluster.settle()

    with pytest.raises(BaseExceptionGroup) as raised:
        virtual_time.run(story())
    assert "broken driver" in repr(raised.value)


def test_a_cluster_that_never_comes_to_rest_is_left_after_a_while() -> None:
    async def write_for_ever(cluster: SimulatedCluster) -> None:
        for number in itertools.count():
            meta = {"metadata": {"labels": {"number": str(number)}}}
            await cluster.client.patch(NODES, "n1", meta)
            await asyncio.sleep(30)

    async def story() -> tuple[bool, float]:
        async with SimulatedCluster([]) as cluster:
            await cluster.client.create(NODES, node("n1"))
            writing = asyncio.create_task(write_for_ever(cluster))
            quiet = await cluster.settle(limit=600)
            writing.cancel()
            return quiet, asyncio.get_running_loop().time()

    assert virtual_time.run(story()) == (False, 600)


def test_pods_of_a_second_scheduler_get_their_node_through_the_extender_path(play: Play) -> None:
    settings = ControllerSettings(scheduler_names=("parley",))
    objects = [node("a"), devices("a", "gpu-0"), class_(), template()]
    pods = [pod(name, "one", schedulerName="parley") for name in ("first", "second")]

    found = play(*objects, *pods, settings=settings)

    assert sorted(record.node for record in found.values()) == ["", "a"]
