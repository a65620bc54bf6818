"""The admission policies on a real control plane: what they keep from mirrors, and whom they leave alone."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from tests.cluster.patience import patient
from tests.cluster.raw import raw

from parley.api.names import DEVICE_CLASS
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.control.objects.in_use import in_use_devices, with_condition
from parley.kube.client import Forbidden
from parley.sdk import PodReference
from parley_devcluster import Cluster, ClusterError

pytestmark = pytest.mark.cluster

CONTROLLER = "system:serviceaccount:parley-system:parley-controller"
NODE_PLUGIN = "system:serviceaccount:parley-system:parley-kubelet"
SCHEDULER = "system:kube-scheduler"
CLAIM_CONTROLLER = "system:serviceaccount:kube-system:resource-claim-controller"
CLEARED = {"allocation": None, "reservedFor": None, "devices": None}

Consumer = dict[str, str]
Write = Callable[[str, dict[str, Any], str], Awaitable[dict[str, Any]]]


def allocation(request: str) -> dict[str, Any]:
    result = {"request": request, "driver": "device.parley.dev", "pool": "n1", "device": "gpu-0"}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    return {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}


def claim(name: str, request: str, device_class: str = DEVICE_CLASS) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": request, "exactly": {"deviceClassName": device_class}}]}},
    }


@pytest.fixture
def write(installed: Cluster, namespace: str) -> Write:
    """Patches the status of a claim as the account given, and returns the status that it has then."""

    async def patch(name: str, status: dict[str, Any], account: str) -> dict[str, Any]:
        claims = BUILTIN_CLAIMS.untyped()
        async with patient(installed.kubeconfig_for(account)) as client:
            claim = await client.patch(claims, name, {"status": status}, namespace, subresource="status")
        after: dict[str, Any] = claim.get("status", {})
        return after

    return patch


def pod(installed: Cluster, namespace: str, name: str) -> Consumer:
    """A pod that the scheduler leaves alone. The claim controller drops reservations of pods that do not exist."""
    spec = {"schedulingGates": [{"name": "parley.dev/test"}], "containers": [{"name": "main", "image": "none"}]}
    made = raw(installed).post(PODS.path(namespace), {"metadata": {"name": name}, "spec": spec})
    return {"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}


@pytest.fixture
def pod_a(installed: Cluster, namespace: str) -> Consumer:
    return pod(installed, namespace, "a")


@pytest.fixture
def pod_b(installed: Cluster, namespace: str) -> Consumer:
    return pod(installed, namespace, "b")


def reserved(user: Consumer, request: str = "exclusive") -> dict[str, Any]:
    return {"allocation": allocation(request), "reservedFor": [user]}


@pytest.fixture
def exclusive(installed: Cluster, namespace: str) -> str:
    """A mirror for one pod at a time."""
    raw(installed).post(BUILTIN_CLAIMS.path(namespace), claim("scanner", "exclusive"))
    return "scanner"


@pytest.fixture
def shareable(installed: Cluster, namespace: str) -> str:
    """A mirror for several pods."""
    raw(installed).post(BUILTIN_CLAIMS.path(namespace), claim("camera", "shareable"))
    return "camera"


async def test_parley_allocates_and_reserves_in_one_write_and_clears_again(
    write: Write, exclusive: str, pod_a: Consumer, pod_b: Consumer
) -> None:
    assert (await write(exclusive, reserved(pod_a), CONTROLLER))["reservedFor"] == [pod_a]
    assert await write(exclusive, CLEARED, CONTROLLER) == {}
    assert (await write(exclusive, reserved(pod_b), CONTROLLER))["reservedFor"] == [pod_b]


async def test_parley_offers_nodes_and_sets_the_conditions(write: Write, exclusive: str) -> None:
    offer = allocation("exclusive")
    offer["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    offer["devices"]["results"][0].update(
        bindingConditions=["parley.dev/allocated"], bindingFailureConditions=["parley.dev/declined"]
    )
    await write(exclusive, {"allocation": offer}, CONTROLLER)
    now = "2026-01-01T00:00:01Z"
    condition = {
        "type": "parley.dev/allocated",
        "status": "True",
        "reason": "Allocated",
        "message": "on node n1",
        "lastTransitionTime": now,
    }
    device = {
        "driver": "device.parley.dev",
        "pool": "n1",
        "device": "gpu-0",
        "conditions": [condition],
        "data": {"devices": []},
    }

    assert (await write(exclusive, {"devices": [device]}, CONTROLLER))["devices"] == [device]


@pytest.mark.parametrize("account", [CLAIM_CONTROLLER, CONTROLLER, SCHEDULER])
async def test_a_second_pod_is_kept_out(
    write: Write, exclusive: str, namespace: str, account: str, pod_a: Consumer, pod_b: Consumer
) -> None:
    await write(exclusive, reserved(pod_a), CONTROLLER)

    with pytest.raises(Forbidden) as refused:
        await write(exclusive, {"reservedFor": [pod_a, pod_b]}, account)

    assert (
        f"ResourceClaim {namespace}/scanner is exclusive, and status.reservedFor would hold 2 pods (a, b): wait "
        "until the first pod is gone, or use a ResourceClass that has shareable: true." in str(refused.value)
    )


async def test_a_reservation_does_not_pass_from_pod_to_pod(
    write: Write, exclusive: str, namespace: str, pod_a: Consumer, pod_b: Consumer
) -> None:
    await write(exclusive, reserved(pod_a), CONTROLLER)

    with pytest.raises(Forbidden) as refused:
        await write(exclusive, {"reservedFor": [pod_b]}, CLAIM_CONTROLLER)

    assert (
        f"ResourceClaim {namespace}/scanner is exclusive and reserved for pod a (UID {pod_a['uid']}); "
        f"status.reservedFor cannot pass to pod b (UID {pod_b['uid']}) in one step: "
        "clear it first, when the first pod is gone." in str(refused.value)
    )


@pytest.mark.parametrize("account", [CLAIM_CONTROLLER, SCHEDULER])
async def test_only_parley_says_which_pod_is_next(
    write: Write, exclusive: str, namespace: str, account: str, pod_a: Consumer, pod_b: Consumer
) -> None:
    await write(exclusive, reserved(pod_a), CONTROLLER)
    await write(exclusive, {"reservedFor": None}, CLAIM_CONTROLLER)

    with pytest.raises(Forbidden) as refused:
        await write(exclusive, {"reservedFor": [pod_b]}, account)

    assert (
        f"ResourceClaim {namespace}/scanner is exclusive, and Parley decides which pod may use it: wait until "
        "it adds pod b to status.reservedFor, which takes the verb allocate on resourceclaims.parley.dev."
        in str(refused.value)
    )
    assert (await write(exclusive, {"reservedFor": [pod_b]}, CONTROLLER))["reservedFor"] == [pod_b]


@pytest.mark.parametrize("account", [CLAIM_CONTROLLER, SCHEDULER])
async def test_anybody_may_reserve_a_generated_claim_for_the_pod_that_it_belongs_to(
    installed: Cluster, namespace: str, write: Write, account: str, pod_a: Consumer, pod_b: Consumer
) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": pod_a["uid"], "controller": True}
    body = claim("generated", "exclusive")
    body["metadata"]["ownerReferences"] = [owner]
    raw(installed).post(BUILTIN_CLAIMS.path(namespace), body)
    await write("generated", {"allocation": allocation("exclusive")}, CONTROLLER)

    with pytest.raises(Forbidden, match="wait until it adds pod b"):
        await write("generated", {"reservedFor": [pod_b]}, account)

    assert (await write("generated", {"reservedFor": [pod_a]}, account))["reservedFor"] == [pod_a]


@pytest.mark.parametrize("account", [CLAIM_CONTROLLER, SCHEDULER])
async def test_others_may_clear_an_allocation(write: Write, exclusive: str, account: str, pod_a: Consumer) -> None:
    await write(exclusive, reserved(pod_a), CONTROLLER)

    assert await write(exclusive, CLEARED, account) == {}


@pytest.mark.parametrize("account", [CLAIM_CONTROLLER, SCHEDULER])
async def test_others_do_not_clear_what_is_said_to_be_in_use(
    write: Write, exclusive: str, account: str, pod_a: Consumer
) -> None:
    """As the scheduler would do for a pod that waits, if the reservation of the pod that runs was lost."""
    now = "2026-01-01T00:00:00Z"
    status = {**with_condition(allocation("exclusive"), now), "reservedFor": [pod_a]}
    await write(exclusive, status, CONTROLLER)
    mirror = BUILTIN_CLAIMS.decode(orjson.dumps({**claim("scanner", "exclusive"), "status": status}))
    await write(
        exclusive, {"devices": in_use_devices(mirror, PodReference("team", "a", "uid-a"), now)}, CONTROLLER
    )

    with pytest.raises(Forbidden, match="is in use, as condition"):
        await write(exclusive, CLEARED, account)
    left = await write(exclusive, {"reservedFor": None}, account)
    assert (left.get("reservedFor"), bool(left["allocation"])) == (None, True)
    assert await write(exclusive, CLEARED, CONTROLLER) == {}


async def test_a_shareable_mirror_takes_several_pods(
    write: Write, shareable: str, pod_a: Consumer, pod_b: Consumer
) -> None:
    await write(shareable, reserved(pod_a, "shareable"), CONTROLLER)

    both = [pod_a, pod_b]
    assert (await write(shareable, {"reservedFor": both}, SCHEDULER))["reservedFor"] == both


@pytest.mark.parametrize("request_name", ["exclusive", "shareable"])
async def test_nobody_but_parley_allocates_a_mirror(
    write: Write, exclusive: str, shareable: str, namespace: str, request_name: str
) -> None:
    name = {"exclusive": exclusive, "shareable": shareable}[request_name]

    with pytest.raises(Forbidden) as refused:
        await write(name, {"allocation": allocation(request_name)}, SCHEDULER)

    assert (
        f"ResourceClaim {namespace}/{name} is negotiated by Parley, and system:kube-scheduler cannot set "
        "status.allocation: let Parley allocate it, or grant the verb allocate on resourceclaims.parley.dev."
        in str(refused.value)
    )


async def test_ordinary_claims_are_left_alone(
    installed: Cluster, namespace: str, write: Write, pod_a: Consumer, pod_b: Consumer
) -> None:
    raw(installed).post(BUILTIN_CLAIMS.path(namespace), claim("plain", "exclusive", "gpus.example.org"))

    await write("plain", reserved(pod_a), SCHEDULER)

    both = [pod_a, pod_b]
    assert (await write("plain", {"reservedFor": both}, SCHEDULER))["reservedFor"] == both


def test_the_device_class_of_mirrors_cannot_be_made(installed: Cluster) -> None:
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DEVICE_CLASS}}

    with pytest.raises(ClusterError) as refused:
        installed.kubectl("create", "-f", "-", stdin=json.dumps(body))

    assert (
        "DeviceClass being-negotiated.parley.dev must not exist: claims that name it are negotiated by Parley. "
        "Use another name." in str(refused.value)
    )


def slice_of(node: str) -> str:
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-of-{node}"},
        "spec": {
            "driver": "device.parley.dev",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }
    return json.dumps(body)


def on_node(node: str) -> tuple[str, ...]:
    return (f"--as={NODE_PLUGIN}", f"--as-user-extra=authentication.kubernetes.io/node-name={node}")


@pytest.mark.parametrize("verb", ["create", "delete"])
def test_a_node_plugin_writes_no_other_nodes_slices(installed: Cluster, verb: str) -> None:
    if verb == "delete":
        installed.kubectl("create", "-f", "-", *on_node("n2"), stdin=slice_of("n2"))

    with pytest.raises(ClusterError) as refused:
        installed.kubectl(verb, "-f", "-", *on_node("n1"), stdin=slice_of("n2"))

    assert (
        "ResourceSlice slice-of-n2 has spec.nodeName n2, but the node plugin on n1 can write slices of its own "
        "node only: set spec.nodeName to n1." in str(refused.value)
    )
    if verb == "delete":
        installed.kubectl("delete", "-f", "-", *on_node("n2"), stdin=slice_of("n2"))


def test_a_node_plugin_whose_token_names_no_node_writes_no_slices(installed: Cluster) -> None:
    with pytest.raises(ClusterError) as refused:
        installed.kubectl("create", "-f", "-", f"--as={NODE_PLUGIN}", stdin=slice_of("n3"))

    assert (
        f"ResourceSlice slice-of-n3: the token of {NODE_PLUGIN}, a node plugin, does not name a node: use the "
        "token of a pod on the node, or one that was created for the node (kubectl create token "
        "--bound-object-kind Node)." in str(refused.value)
    )


def test_administrators_write_slices_of_any_node(installed: Cluster) -> None:
    installed.kubectl("create", "-f", "-", stdin=slice_of("n4"))
    installed.kubectl("delete", "-f", "-", stdin=slice_of("n4"))
