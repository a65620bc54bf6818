"""What the node plugin's account may do, with the token that a pod of its DaemonSet has: what it needs only."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from tests.cluster.patience import patient
from tests.cluster.raw import raw

from parley.api.names import NODE_PLUGIN as BY_A_PLUGIN
from parley.api.names import PUBLISHED_BY_LABEL
from parley.api.resources import CLAIM_RELEASES, EVENTS, NODES, PODS, RESOURCE_SLICES
from parley.kube.client import Call, Client, Forbidden, NotFound, RawEvent
from parley.kube.http import HttpClient
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE, NODE_PLUGIN
from parley_kubelet.claims.notices import Notices
from parley_kubelet.claims.orphans import release_orphans
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.claims.releases import Receipts
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.hooks import HeldClaim, Notice, Offer
from parley_kubelet.serving.slices import SlicePublisher, slice_specs
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import allocated_status, create_claim

pytestmark = pytest.mark.cluster

DRIVER = "device.parley.dev"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NODE_PLUGIN}"

T = TypeVar("T")


class TellingDevices(DeviceNodeDriver):
    """Has something to say about every claim."""

    async def notices(self, held: Sequence[HeldClaim[Any]]) -> Sequence[Notice[Any]]:
        return [Notice(one.claim, "Worn", "replace it") for one in held]


class Owed(Protocol):
    """Makes a release for a node to answer; returns its name."""

    async def __call__(self, node: str, *, cleared: bool = True) -> str: ...


class Recorder(Client):
    """Notes which rights a client needs: group, resource and verb."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.used: set[tuple[str, str, str]] = set()

    async def request(self, call: Call) -> bytes:
        self._note(call)
        return await super().request(call)

    def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        self._note(call)
        return super().stream(call)

    def _note(self, call: Call) -> None:
        self.used.add((call.resource.group, call.resource.plural, call.verb))


@pytest.fixture
async def admin(installed: Cluster) -> AsyncIterator[Client]:
    async with patient(installed.kubeconfig) as client:
        yield client


@pytest.fixture
async def nodes(admin: Client) -> AsyncIterator[tuple[str, str]]:
    """The plugin's own node, and another one."""
    names = tuple(f"n-{uuid.uuid4().hex[:8]}" for _ in range(2))
    for name in names:
        await admin.create(NODES, {"metadata": {"name": name}})
    yield names[0], names[1]
    for name in names:
        await admin.delete(NODES, name)


@pytest.fixture
async def plugin(
    installed: Cluster, admin: Client, nodes: tuple[str, str], tmp_path: Path
) -> AsyncIterator[Recorder]:
    """The API server as a plugin on the first node sees it: its pod's token tells the node."""
    async with of_a_pod(installed, admin, nodes[0], tmp_path, NODE_PLUGIN) as client:
        yield Recorder(client)


@pytest.fixture
async def another(
    installed: Cluster, admin: Client, nodes: tuple[str, str], tmp_path: Path
) -> AsyncIterator[HttpClient]:
    """The same for another DaemonSet on the first node, with an account that was bound as the docs say."""
    name = f"hooks-{nodes[0]}"
    installed.kubectl("create", "serviceaccount", name, f"--namespace={NAMESPACE}")
    bind = ("create", "clusterrolebinding", name, f"--clusterrole={NODE_PLUGIN}")
    installed.kubectl(*bind, f"--serviceaccount={NAMESPACE}:{name}")
    async with of_a_pod(installed, admin, nodes[0], tmp_path, name) as client:
        yield client
    installed.kubectl("delete", "clusterrolebinding", name)


@asynccontextmanager
async def of_a_pod(
    cluster: Cluster, admin: Client, node: str, folder: Path, account: str
) -> AsyncIterator[HttpClient]:
    """The API server with the token of a pod on the node."""
    container = {"name": "plugin", "image": "none"}
    spec = {"nodeName": node, "serviceAccountName": account, "containers": [container]}
    pod = await admin.create(PODS, {"metadata": {"name": f"{account}-{node}"}, "spec": spec}, NAMESPACE)
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    document = json.loads(cluster.kubeconfig_for_service_account(NAMESPACE, account).read_text())
    document["users"][0]["user"]["token"] = raw(cluster).post(path, request)["status"]["token"]
    (folder / "kubeconfig").write_text(json.dumps(document))
    async with patient(folder / "kubeconfig") as client:
        yield client
    await admin.delete(PODS, pod.metadata.name, NAMESPACE, grace_period_seconds=0)


@pytest.fixture
async def owed(admin: Client) -> AsyncIterator[Owed]:
    """A release that the node has to answer; nothing of it is left afterwards."""
    made: list[str] = []

    async def make(node: str, *, cleared: bool = True) -> str:
        name = f"r-{uuid.uuid4().hex[:8]}"
        claim = {"namespace": "default", "name": "mine", "uid": "u1"}
        spec = {"claim": claim, "holdingUid": "u1", "nodeName": node, "driverName": DRIVER, "allocation": {}}
        status = {"allocationCleared": True} if cleared else {}
        await admin.create(CLAIM_RELEASES, {"metadata": {"name": name}, "spec": spec, "status": status})
        made.append(name)
        return name

    yield make
    for name in made:
        with suppress(NotFound):
            await admin.delete(CLAIM_RELEASES, name)


async def remaining(admin: Client, *names: str) -> set[str]:
    """Those of the releases that are there."""
    return {release.metadata.name for release in (await admin.list(CLAIM_RELEASES)).items} & set(names)


async def test_all_that_the_role_allows_is_used_and_nothing_else(
    installed: Cluster,
    admin: Client,
    plugin: Recorder,
    nodes: tuple[str, str],
    namespace: str,
    tmp_path: Path,
    owed: Owed,
) -> None:
    node, _ = nodes
    driver = TellingDevices(node, Configuration.model_validate({"devices": [{"name": "gpu-0", "model": "a100"}]}))
    state, cdi = Folder(tmp_path / "state"), Folder(tmp_path / "cdi")
    preparation = Preparation(driver, plugin, state=state, cdi=cdi, boot="b")
    container = {"name": "main", "image": "none"}
    body = {"metadata": {"name": "user"}, "spec": {"schedulerName": "nobody", "containers": [container]}}
    user = (await admin.create(PODS, body, namespace)).metadata.uid
    reserved = [{"resource": "pods", "name": "user", "uid": user}]
    status = {**allocated_status(node, ["gpu-0"]), "reservedFor": reserved}
    claim = await create_claim(admin, "claim", status, namespace)
    await preparation.prepare(ClaimName(namespace, "claim", claim.metadata.uid))
    await release_orphans(preparation, plugin)
    await Notices(preparation, plugin).poll()

    offers = [Offer(f"gpu-{number}") for number in range(65)]
    publisher = SlicePublisher(plugin, driver=DRIVER, node=node, devices=lambda: tuple(offers))
    await publisher.publish()
    del offers[3:]
    await publisher.publish()

    release = await owed(node)
    granted = {
        (group, resource, verb)
        for rule in raw(installed).get(ROLE)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if resource != "resourceclaims/driver"  # asked about by policies
    }
    running = [asyncio.create_task(publisher.run())]
    running += [asyncio.create_task(Receipts(plugin, node, {DRIVER: preparation}).run())]
    for _ in range(1200):  # a minute; what is watched is listed first, so the last thing to be used may be a watch
        if not await remaining(admin, release) and granted <= plugin.used:
            break
        await asyncio.sleep(0.05)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)

    assert not await remaining(admin, release)
    assert plugin.used == granted
    told = (await admin.list(EVENTS.untyped(), namespace, field_selector="reason=Worn")).items
    assert {event["regarding"]["kind"] for event in told} == {"ResourceClaim", "Pod"}
    assert {event["note"] for event in told} == {f"claim {namespace}/claim: replace it"}


def a_slice(node: str, **spec: Any) -> dict[str, Any]:
    (made,) = slice_specs(DRIVER, node, [], 1)
    return {"metadata": {"generateName": "s-"}, "spec": {**made, **spec}}


async def test_slices_of_its_own_node_only(admin: Client, plugin: Client, nodes: tuple[str, str]) -> None:
    own, other = nodes
    theirs = (await admin.create(RESOURCE_SLICES, a_slice(other))).metadata
    for body in (a_slice(other), {**a_slice(own), "spec": {**a_slice(own)["spec"], "allNodes": True}}):
        if "allNodes" in body["spec"]:
            del body["spec"]["nodeName"]
        with pytest.raises(Forbidden, match=f"the node plugin on {own} can write slices of its own node only"):
            await plugin.create(RESOURCE_SLICES, body)
    with pytest.raises(Forbidden, match=f"has spec.nodeName {other}, but the node plugin on {own}"):
        await plugin.patch(RESOURCE_SLICES, theirs.name, {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Forbidden, match=f"has spec.nodeName {other}, but the node plugin on {own}"):
        await plugin.delete(RESOURCE_SLICES, theirs.name)


async def test_only_who_may_publish_for_a_driver_says_that_it_runs_nowhere_else(
    plugin: Client, nodes: tuple[str, str]
) -> None:
    own, _ = nodes
    labelled = {"metadata": {"generateName": "s-", "labels": {PUBLISHED_BY_LABEL: BY_A_PLUGIN}}}
    await plugin.create(RESOURCE_SLICES, {**a_slice(own), **labelled})

    theirs = a_slice(own, driver="attached.example.com")
    with pytest.raises(Forbidden, match="grant the verb publish on"):
        await plugin.create(RESOURCE_SLICES, {**theirs, **labelled})
    made = await plugin.create(RESOURCE_SLICES, theirs)
    with pytest.raises(Forbidden) as refused:
        await plugin.patch(RESOURCE_SLICES, made.metadata.name, {"metadata": {"labels": {PUBLISHED_BY_LABEL: ""}}})

    assert (
        f"ResourceSlice {made.metadata.name} has label parley.dev/published-by, which says that driver "
        "attached.example.com runs on no node without such a slice, and "
        f"system:serviceaccount:{NAMESPACE}:{NODE_PLUGIN} cannot say so: leave out the label, or grant the verb "
        "publish on resourceclaims.parley.dev/driver with the resource name attached.example.com."
        in str(refused.value)
    )


async def test_a_plugin_that_may_not_publish_for_its_driver_publishes_without_the_label(
    admin: Client, plugin: Client, nodes: tuple[str, str]
) -> None:
    own, driver = nodes[0], "attached.example.com"
    offers = [Offer(f"disk-{number}") for number in range(65)]
    publisher = SlicePublisher(plugin, driver=driver, node=own, devices=lambda: tuple(offers))

    await publisher.publish()
    del offers[3:]
    await publisher.publish()

    of_plugin = f"spec.driver={driver},spec.nodeName={own}"
    (published,) = (await admin.list(RESOURCE_SLICES, field_selector=of_plugin)).items
    assert [device.name for device in published.spec.devices] == ["disk-0", "disk-1", "disk-2"]
    assert not published.metadata.labels


async def test_receipts_of_its_own_node_that_are_asked_for_and_nothing_else(
    admin: Client, plugin: Client, nodes: tuple[str, str], owed: Owed
) -> None:
    own, other = nodes
    asked, not_yet, of_other = await owed(own), await owed(own, cleared=False), await owed(other)

    with pytest.raises(Forbidden, match=f"{of_other} is for another node"):
        await plugin.delete(CLAIM_RELEASES, of_other)
    with pytest.raises(Forbidden, match=f"{not_yet} belongs to a claim that is still allocated"):
        await plugin.delete(CLAIM_RELEASES, not_yet)
    with pytest.raises(Forbidden, match="cannot patch resource"):
        await plugin.patch(CLAIM_RELEASES, not_yet, {"status": {"allocationCleared": True}})
    with pytest.raises(Forbidden, match="cannot create resource"):
        await plugin.create(CLAIM_RELEASES, {"metadata": {"name": "mine"}})
    await plugin.delete(CLAIM_RELEASES, asked)

    assert await remaining(admin, asked, not_yet, of_other) == {not_yet, of_other}


async def test_every_account_that_has_the_role_is_held_to_its_node(
    admin: Client, another: Client, nodes: tuple[str, str], owed: Owed
) -> None:
    own, other = nodes
    theirs = (await admin.create(RESOURCE_SLICES, a_slice(other))).metadata
    asked, of_other = await owed(own), await owed(other)

    with pytest.raises(Forbidden, match=f"has spec.nodeName {other}, but the node plugin on {own}"):
        await another.create(RESOURCE_SLICES, a_slice(other))
    with pytest.raises(Forbidden, match=f"has spec.nodeName {other}, but the node plugin on {own}"):
        await another.delete(RESOURCE_SLICES, theirs.name)
    with pytest.raises(Forbidden, match="is for another node"):
        await another.delete(CLAIM_RELEASES, of_other)

    made = await another.create(RESOURCE_SLICES, a_slice(own))
    await another.delete(RESOURCE_SLICES, made.metadata.name)
    await another.delete(CLAIM_RELEASES, asked)


async def test_a_token_that_names_no_node_writes_nothing(
    installed: Cluster, nodes: tuple[str, str], owed: Owed
) -> None:
    own, _ = nodes
    asked = await owed(own)
    account = installed.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN)
    async with patient(account) as client:
        with pytest.raises(
            Forbidden, match="a node plugin, does not name a node: use the token of a pod on the node"
        ):
            await client.create(RESOURCE_SLICES, a_slice(own))
        with pytest.raises(
            Forbidden, match=f"{asked}: the token of .* does not name a node: use the token of a pod"
        ):
            await client.delete(CLAIM_RELEASES, asked)


async def test_a_token_that_was_made_for_the_node_does_as_well_as_a_pods(
    installed: Cluster, nodes: tuple[str, str], owed: Owed
) -> None:
    own, other = nodes
    asked = await owed(own)
    account = installed.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN, node=own)
    async with patient(account) as client:
        await client.create(RESOURCE_SLICES, a_slice(own))
        await client.delete(CLAIM_RELEASES, asked)
        with pytest.raises(Forbidden, match=f"has spec.nodeName {other}, but the node plugin on {own}"):
            await client.create(RESOURCE_SLICES, a_slice(other))
