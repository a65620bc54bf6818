"""Commands and manifests of the README, the quickstart and docs/web.md, as a reader types them at a real control
plane."""

import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.cluster.manifests import pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.reader import ROOT, Reader, line
from tests.integration.native.conftest import Devices, Parley
from tests.support.shown import commands, shown

from parley.kube.client import Client
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

README, QUICKSTART, WEB, TOKENS = (
    (ROOT / page).read_text()
    for page in ("README.md", "docs/quickstart.md", "docs/web.md", "docs/tokens-driver.md")
)
LICENCES = "licences.example.com"


@pytest.fixture
def reader(cluster: Cluster, team: Namespace, tmp_path: Path) -> Reader:
    return Reader.of(cluster, tmp_path, team.name)


@pytest.fixture
async def waiting(parley: Parley, cluster: Cluster, tmp_path: Path) -> AsyncIterator[Reader]:
    """A reader who has applied the first example, whose pods wait here: the nodes have no devices."""
    reader = Reader.of(cluster, tmp_path)
    await reader(shown(QUICKSTART, "kubectl apply -f examples/gpu.yaml"))
    await reader("kubectl wait --for=create podscheduling/gpu --timeout=60s")
    await reader("kubectl wait --for=jsonpath={.status.waitingFor}=NothingViable podscheduling/gpu --timeout=60s")
    about = "--field-selector=involvedObject.name=gpu,reason=NothingViable"
    await reader(f"kubectl wait --for=create event {about} --timeout=60s")
    yield reader
    await reader("kubectl delete -f examples/gpu.yaml --timeout=60s")


async def test_the_quickstarts_questions_about_its_pod(waiting: Reader) -> None:
    listed = await waiting(shown(QUICKSTART, "kubectl get podschedulings"))
    described = await waiting(shown(QUICKSTART, "kubectl describe pod gpu"))
    explained = await waiting(shown(QUICKSTART, "parley explain pod gpu"))
    claims = await waiting(shown(README, "kubectl get prclaims"))

    headings = listed.splitlines()[0].split()
    assert " ".join(headings) in re.sub(" +", " ", (ROOT / "docs" / "explain.md").read_text())
    assert re.search(r"(?m)^gpu .* NothingViable ", listed)
    assert "0 of 3 nodes are available: " in described
    assert explained.startswith("Pod default/gpu has been waiting for ")
    assert re.search(r"(?m)^scanner +gpu +False ", claims)


async def test_the_readmes_questions(waiting: Reader) -> None:
    explained = await waiting(shown(README, "parley explain pod gpu"))
    classes = await waiting(shown(README, "parley get classes"))
    found = await waiting(shown(README, "parley doctor"), status=8)

    assert explained.startswith("Pod default/gpu has been waiting for ")
    assert re.search(r"(?m)^gpu +device\.parley\.dev ", classes)
    assert "no Deployment of namespace parley-system runs `parley controller`" in found


async def test_a_pod_is_explained_and_a_dump_of_its_cluster_is_simulated(
    reader: Reader, team: Namespace, devices: Devices
) -> None:
    page = (ROOT / "docs" / "explain.md").read_text()
    await devices(node_1=1)
    await team.create(template("one"), pod("trainer", templates={"gpu": "one"}))
    await team.bound("trainer")
    explain, explain_all, as_data = (one for one, _ in commands(page) if one.startswith("parley explain"))

    assert re.match(rf"Pod {team.name}/trainer (is|has been) bound to node-1", await reader(explain))
    assert (await reader(explain_all)).startswith("No pod with Parley claims is waiting in ")
    assert json.loads(await reader(as_data))["items"][0]["node"] == "node-1"
    await reader(shown(page, "kubectl get namespaces,nodes,resourceslices"))
    simulated = await reader("parley simulate cluster.json")

    assert re.search(rf"(?m)^ +{team.name}/trainer +node-1", simulated)


@pytest.mark.parametrize("page", [README, WEB], ids=["README.md", "docs/web.md"])
async def test_the_page_is_served_as_shown(reader: Reader, page: str) -> None:
    """At any free port: the one that pages show may be taken."""
    (told,) = [output for command, output in commands(WEB) if command == "parley web"]

    async with reader.typed(f"{shown(page, 'parley web')} --address 0") as process:
        printed = await line(process, "http://")
        async with aiohttp.ClientSession() as session, session.get(printed.split()[0]) as answer:
            html = await answer.text()

    assert re.sub(r":[0-9]+/", ":8080/", printed) == told.strip()
    assert (answer.status, "Pods and classes" in html) == (200, True)


async def test_the_controller_serves_the_page_at_the_port_of_the_port_forward(reader: Reader) -> None:
    forwarded = shown(WEB, "kubectl -n parley-system port-forward").split()[-1]

    (address,) = set(re.findall(r"`parley controller --web-address ([0-9]+)`", WEB))

    assert address == forwarded


@pytest.fixture
async def licensed(admin: Client, cluster: Cluster) -> AsyncIterator[Namespace]:
    """A namespace with a class of the README's driver, a template and a pod; no controller runs."""
    async with Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine:
        await mine.create(resource_class("licences", LICENCES, nodePart="None"), template("licence", "licences"))
        await mine.create(pod("render", templates={"licence": "licence"}))
        yield mine


async def test_the_readmes_driver_in_a_controller(cluster: Cluster, licensed: Namespace, tmp_path: Path) -> None:
    reader = Reader.of(cluster, tmp_path)

    async with reader.typed(shown(README, "parley controller")) as process:
        await line(process, "lease acquired")
        await licensed.bound("render")
        await licensed.clear()

    assert process.returncode == 0


async def test_the_readmes_driver_by_itself(
    cluster: Cluster, team: Namespace, reader: Reader, tmp_path: Path
) -> None:
    await reader(shown(README, "parley driver permissions"))
    await reader(shown(QUICKSTART, "kubectl apply -f account.yaml"))

    async with reader.typed(shown(README, "parley driver run")) as process:
        await line(process, "lease acquired")
        await team.create(resource_class("licences", LICENCES, nodePart="None"), template("licence", "licences"))
        await team.create(pod("render", templates={"licence": "licence"}))
        await team.bound("render")
        await team.clear()

    assert process.returncode == 0
    assert shown(QUICKSTART, "parley driver run") == shown(README, "parley driver run")


async def test_the_driver_for_tokens_by_itself(
    cluster: Cluster, team: Namespace, reader: Reader, tmp_path: Path
) -> None:
    await reader("parley driver permissions tokens | kubectl apply -f -")

    async with reader.typed(shown(TOKENS, "parley driver run tokens")) as process:
        await line(process, "lease acquired")
        pool = resource_class("pool", "tokens.parley.dev", nodePart="None", parameters={"pool": 1})
        await team.create(pool, template("token", "pool"), pod("render", templates={"token": "token"}))
        await team.bound("render")
        await team.clear()

    assert process.returncode == 0
