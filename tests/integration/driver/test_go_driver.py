"""The driver in Go on a real API server: whoever reads docs/driver-protocol.md only, can take part.

The test plays the controller: it writes questions and selected nodes, and asks for claims back.
"""

import base64
import os
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.cluster.patience import patient
from tests.cluster.raw import raw
from tests.cluster.watching import until, until_one

from parley.api.names import DRIVERS_LABEL, STANDALONE, driver_finalizer
from parley.api.resources import CLAIMS, CLASSES, POD_SCHEDULINGS, Resource
from parley.cli.permissions import account_name, permissions
from parley.kube.client import Client, Conflict
from parley_devcluster import Cluster
from parley_devcluster.component import Component
from parley_devcluster.machine import free_ports
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster

SOURCES = Path(__file__).parents[3] / "examples" / "go-driver"
NAME = "seats.example.com"
FINALIZER = driver_finalizer(NAME)
NODES = ["node-1", "node-2"]
Object = dict[str, Any]
QUESTIONS, ASKED = POD_SCHEDULINGS.untyped(), CLAIMS.untyped()


def require_go() -> str:
    """Skips without Go; under CI that is a failure."""
    go = shutil.which("go")
    if go is None and os.environ.get("CI") == "true":
        pytest.fail("CI has to build the driver in Go, but go is not on PATH")
    if go is None:
        pytest.skip("go is not on PATH")
    return go


def test_its_code_is_vetted_formatted_and_its_own_tests_pass() -> None:
    go = require_go()
    subprocess.run([go, "vet", "./..."], cwd=SOURCES, check=True)
    subprocess.run([go, "test", "./..."], cwd=SOURCES, check=True)
    sources = [str(path) for path in sorted(SOURCES.glob("*.go"))]
    told = subprocess.run(["gofmt", "-l", *sources], capture_output=True, text=True, check=True)
    assert told.stdout == ""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("go-driver") / "seats"
    subprocess.run([require_go(), "build", "-o", str(built), "."], cwd=SOURCES, check=True)
    return built


@contextmanager
def through_a_proxy(cluster: Cluster, program: Path, _: Path) -> Generator[Component, None, None]:
    """As the README has it for a try."""
    (port,) = free_ports(1)
    server = f"http://127.0.0.1:{port}"
    kubectl = [str(cluster.directory / "bin" / "kubectl"), f"--kubeconfig={cluster.kubeconfig}"]
    proxy = cluster.add_program("kubectl-proxy", [*kubectl, "proxy", f"--port={port}"], health=f"{server}/readyz")
    yield cluster.add_program("go-driver", [str(program), f"--server={server}"])
    proxy.stop()


@contextmanager
def as_a_pod(cluster: Cluster, program: Path, directory: Path) -> Generator[Component, None, None]:
    """With a service account's files, and the permissions that the protocol's page names."""
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(permissions(NAME, NAMESPACE)))
    account = cluster.kubeconfig_for_service_account(NAMESPACE, account_name(NAME))
    document = yaml.safe_load(account.read_text())
    authority = base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"])
    (directory / "ca.crt").write_bytes(authority)
    (directory / "token").write_text(document["users"][0]["user"]["token"])
    address = urlsplit(cluster.server)
    environment = {"KUBERNETES_SERVICE_HOST": str(address.hostname), "KUBERNETES_SERVICE_PORT": str(address.port)}
    command = [str(program), f"--account={directory}"]
    yield cluster.add_program("go-driver", command, environment=environment)


@pytest.fixture(scope="module", params=[through_a_proxy, as_a_pod])
def driver(
    request: pytest.FixtureRequest, installed: Cluster, program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Component]:
    """The driver as a process."""
    with request.param(installed, program, tmp_path_factory.mktemp("account")) as running:
        yield running
        running.stop()


@pytest.fixture
async def client(installed: Cluster) -> AsyncIterator[Client]:
    async with patient(installed.kubeconfig) as real:
        yield real


class Controller:
    """The controller's side of the protocol, for one namespace with a class of its own."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace, self.class_name = client, namespace, namespace

    async def create(self, resource: Resource[Any], name: str, **more: Any) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **more}
        await self.client.create(resource, body, self.namespace if resource.namespaced else None)

    async def claim(self, name: str, **parameters: Any) -> None:
        await self.create(CLAIMS, name, spec={"resourceClassName": self.class_name, "parameters": parameters})

    async def ask(self, pod: str, *claims: str, nodes: list[str] = NODES) -> None:
        """The first question about the pod, whose entries are named like its claims."""
        entries = [{"name": claim, "driverName": NAME, "resourceClaimName": claim} for claim in claims]
        entries += [{"name": "disk", "driverName": "disks.example.com", "resourceClaimName": "disk"}]
        body = {
            "apiVersion": QUESTIONS.api_version,
            "kind": QUESTIONS.kind,
            "metadata": {"name": pod, "labels": {DRIVERS_LABEL: STANDALONE}},
            "spec": {"claims": entries, "candidateNodes": nodes, "round": 1},
        }
        await self.client.create(QUESTIONS, body, self.namespace)

    async def say(self, pod: str, **spec: Any) -> None:
        """The next question, or the selected node."""
        await self.client.patch(QUESTIONS, pod, {"spec": spec}, self.namespace)

    async def request_back(self, claim: str) -> None:
        body = {"status": {"deallocationRequested": True}}
        await self.client.patch(CLAIMS, claim, body, self.namespace, subresource="status")

    async def reserve(self, claim: str, *pods: dict[str, str]) -> None:
        body = {"status": {"reservedFor": pods}}
        await self.client.patch(CLAIMS, claim, body, self.namespace, subresource="status")

    async def answers(self, pod: str, hold: Callable[[dict[str, Object]], bool]) -> dict[str, Object]:
        """The driver's answers by claim, as soon as `hold` is true of them."""
        seen = await until_one(
            self.client, QUESTIONS, pod, lambda o: hold(by_name(o)), "is answered", namespace=self.namespace
        )
        return by_name(seen)

    async def answered(self, pod: str, round_: int = 1) -> dict[str, Object]:
        """The answers to that question."""
        return await self.answers(pod, lambda found: any(e["round"] == round_ for e in found.values()))

    async def told(self, pod: str, claim: str, node: str) -> int:
        """The version of the PodScheduling in which the claim is viable on the node."""
        seen = await until_one(
            self.client,
            QUESTIONS,
            pod,
            lambda question: node in viable(by_name(question), claim),
            f"has {node} as viable",
            namespace=self.namespace,
        )
        return int(seen["metadata"]["resourceVersion"])

    async def until_claim(self, name: str, holds: Callable[[Object], bool], what: str) -> Object:
        return await until_one(self.client, ASKED, name, holds, what, namespace=self.namespace)

    async def allocated(self, name: str) -> Object:
        return await self.until_claim(name, lambda claim: bool(allocation(claim)), "is allocated")

    async def taken_back(self, name: str) -> Object:
        """The claim has nothing, and the driver has no part in it any more."""

        def holds(claim: Object) -> bool:
            return not allocation(claim) and FINALIZER not in claim["metadata"].get("finalizers", [])

        return await self.until_claim(name, holds, "is taken back")


def by_name(question: Object) -> dict[str, Object]:
    return {entry["name"]: entry for entry in question.get("status", {}).get("claims", [])}


def allocation(claim: Object) -> Object:
    found: Object = claim.get("status", {}).get("allocation", {})
    return found


def viable(answers: dict[str, Object], claim: str) -> list[str]:
    found: list[str] = answers.get(claim, {}).get("viableNodes", [])
    return found


@pytest.fixture
async def controller(client: Client, installed: Cluster, driver: Component) -> Controller:
    """With a class of two seats on each node."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    raw(installed).post("/api/v1/namespaces", {"metadata": {"name": name}})
    controller = Controller(client, name)
    await controller.create(CLASSES, name, driverName=NAME, parameters={"seats": 2})
    return controller


async def allocate(controller: Controller, pod: str, claim: str, node: str, **parameters: Any) -> Object:
    await controller.claim(claim, **parameters)
    await controller.ask(pod, claim)
    assert node in viable(await controller.answered(pod), claim)
    await controller.say(pod, selectedNode=node)
    return await controller.allocated(claim)


async def test_it_answers_for_its_own_claims_together(controller: Controller) -> None:
    await controller.claim("one")
    await controller.claim("two", seats=2)
    await controller.ask("pod", "one", "two")
    reason = f"2 of 2 seats of class {controller.class_name} free, 3 wanted"
    answer = {
        "driverName": NAME,
        "round": 1,
        "viableNodes": [],
        "alternatives": {"nodes": []},
        "reason": f"node-1: {reason}; node-2: {reason}",
    }
    answers = await controller.answered("pod")
    assert answers == {"one": {"name": "one", **answer}, "two": {"name": "two", **answer}}


async def test_it_allocates_on_the_selected_node(controller: Controller) -> None:
    claim = await allocate(controller, "pod", "desk", "node-2", seats=2)
    handle = {"class": controller.class_name, "node": "node-2", "seats": 2}
    name = {"key": "metadata.name", "operator": "In", "values": ["node-2"]}
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert claim["status"]["driverName"] == NAME
    assert claim["status"]["allocation"] == {
        "handles": [{"driverName": NAME, "data": handle}],
        "availableOnNodes": {"nodeSelectorTerms": [{"matchFields": [name]}]},
    }


async def test_a_pod_that_waits_is_told_when_seats_come_free(controller: Controller) -> None:
    await allocate(controller, "first", "desk", "node-1", seats=2)
    await controller.claim("next")
    await controller.ask("second", "next", nodes=["node-1"])
    answers = await controller.answered("second")
    assert answers["next"]["reason"] == f"node-1: 0 of 2 seats of class {controller.class_name} free, 1 wanted"

    await controller.say("first", selectedNode="")
    await controller.request_back("desk")
    await controller.taken_back("desk")
    answers = await controller.answers("second", lambda found: viable(found, "next") == ["node-1"])
    assert (answers["next"]["round"], answers["next"].get("reason")) == (1, None)


async def test_all_pods_that_wait_are_told_the_oldest_first(controller: Controller) -> None:
    await allocate(controller, "first", "desk", "node-1", seats=2)
    for claim in ("a", "b"):
        await controller.claim(claim)
        await controller.ask(f"pod-{claim}", claim, nodes=["node-1"])
        await controller.answered(f"pod-{claim}")
    await controller.say("first", selectedNode="")
    await controller.request_back("desk")
    versions = [await controller.told(f"pod-{claim}", claim, "node-1") for claim in ("b", "a")]
    assert versions[1] < versions[0]


async def test_a_node_that_is_full_is_a_failure_until_the_next_question(controller: Controller) -> None:
    await controller.claim("late")
    await controller.ask("loser", "late")
    await controller.answered("loser")
    await allocate(controller, "winner", "desk", "node-1", seats=2)
    await controller.say("loser", selectedNode="node-1")

    answers = await controller.answers("loser", lambda found: "failure" in found.get("late", {}))
    words = f"0 of 2 seats of class {controller.class_name} free, 1 wanted"
    assert answers["late"]["failure"] == {"nodeName": "node-1", "message": words, "permanent": False}
    await controller.say("loser", selectedNode="", round=2)
    answers = await controller.answered("loser", 2)
    assert "failure" not in answers["late"]
    await controller.say("loser", selectedNode="node-2")
    await controller.allocated("late")


async def test_another_selected_node_is_tried_after_a_failure(controller: Controller) -> None:
    await controller.claim("late")
    await controller.ask("loser", "late")
    await controller.answered("loser")
    await allocate(controller, "winner", "desk", "node-1", seats=2)
    await controller.say("loser", selectedNode="node-1")
    await controller.answers("loser", lambda found: "failure" in found.get("late", {}))
    await controller.say("loser", selectedNode="node-2")
    assert (await controller.allocated("late"))["status"]["allocation"]["handles"][0]["data"]["node"] == "node-2"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"seats": 0}, "seats=0: must be 1 or more"),
        ({"chairs": 1}, '{"chairs":1}: json: unknown field "chairs" (known parameters: seats)'),
    ],
    ids=str,
)
async def test_parameters_it_cannot_understand_are_an_answer(
    controller: Controller, parameters: Object, words: str
) -> None:
    await controller.claim("odd", **parameters)
    await controller.ask("pod", "odd")
    answer = (await controller.answered("pod"))["odd"]
    assert answer["viableNodes"] == []
    assert answer["alternatives"] == {"nodes": []}
    assert answer["waitingFor"] == "ParametersInvalid"
    assert answer["reason"] == f"parameters of claim {controller.namespace}/odd: {words}"


async def test_a_claim_in_use_outlives_its_deletion(controller: Controller) -> None:
    await allocate(controller, "pod", "desk", "node-1")
    await controller.reserve("desk", {"resource": "pods", "name": "pod", "uid": "some-uid"})
    await controller.client.delete(CLAIMS, "desk", controller.namespace)
    # The answer to a later question shows that the driver saw the deletion.
    await controller.claim("other")
    await controller.ask("another", "other")
    await controller.answered("another")
    assert allocation(await controller.client.get(ASKED, "desk", controller.namespace))

    await controller.reserve("desk")
    await until(
        controller.client, ASKED, lambda claims: (controller.namespace, "desk") not in claims, "desk is gone"
    )


async def test_what_happened_while_it_was_away_is_made_up_for(controller: Controller, driver: Component) -> None:
    await allocate(controller, "one", "kept", "node-1", seats=2)
    await allocate(controller, "two", "returned", "node-2", seats=2)
    driver.kill()
    await controller.request_back("returned")
    await controller.client.delete(POD_SCHEDULINGS, "two", controller.namespace)
    await controller.claim("abandoned")
    half_done = {"metadata": {"finalizers": [FINALIZER]}}
    await controller.client.patch(CLAIMS, "abandoned", half_done, controller.namespace)
    await controller.claim("next", seats=2)
    await controller.ask("three", "next")
    driver.start()

    await controller.taken_back("returned")
    await controller.taken_back("abandoned")
    answers = await controller.answers("three", lambda found: viable(found, "next") != [])
    assert viable(answers, "next") == ["node-2"]
    assert allocation(await controller.client.get(ASKED, "kept", controller.namespace))


async def test_an_answer_that_stays_the_same_is_written_once(controller: Controller) -> None:
    await controller.claim("quiet")
    await controller.ask("pod", "quiet")
    await controller.answered("pod")
    before = await controller.client.get(QUESTIONS, "pod", controller.namespace)
    await allocate(controller, "other", "desk", "node-1")
    after = await controller.client.get(QUESTIONS, "pod", controller.namespace)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_an_answer_that_names_the_uid_does_not_make_a_question_anew(controller: Controller) -> None:
    """What the protocol's page promises to drivers."""
    for uid, left in ((str(uuid.uuid4()), []), (None, ["gone"])):
        answer = {"metadata": {"name": "gone", "uid": uid} if uid else {"name": "gone"}, "status": {"claims": []}}
        with suppress(Conflict):
            await controller.client.apply(
                QUESTIONS, "gone", answer, controller.namespace, field_manager=NAME, force=True
            )
        listing = await controller.client.list(QUESTIONS, controller.namespace)
        assert [question["metadata"]["name"] for question in listing.items] == left
