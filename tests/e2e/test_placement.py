"""Where pods run, and who gets in: kube-scheduler, kubelets and Parley's plugins have a say each."""

import pytest
from tests.cluster.containers import status
from tests.cluster.manifests import apart_from, claim, ordinary_claim, ordinary_class, pod
from tests.cluster.namespace import Namespace, devices_of
from tests.cluster.nodes import PREPARED, calls, prepared
from tests.cluster.watching import until

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Event
from parley.api.resources import BUILTIN_CLAIMS, EVENTS, PODS
from parley.control.objects.mirror import is_offer
from parley.sdk import Device
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

LOUD = {"habit": "loud"}


def offered(mirror: BuiltinClaim) -> bool:
    return mirror.status.allocation is not None and is_offer(mirror.status.allocation)


async def test_a_pod_that_the_scheduler_refuses_on_one_node_runs_on_the_node_that_it_chooses(
    cluster: Cluster, team: Namespace
) -> None:
    await team.create(pod("loud", labels=LOUD, nodeName="node-b"))
    await team.create(pod("first", templates={"gpu": "one"}, nodeSelector={"kubernetes.io/hostname": "node-a"}))
    for name in ("loud", "first"):
        await team.runs(name)

    await team.create(pod("quiet", templates={"gpu": "one"}, affinity=apart_from(LOUD)))

    await team.waits("quiet", reasons.SCHEDULER_REFUSED)
    await team.claims(
        lambda claims: sum(map(len, map(devices_of, claims))) == 1, "the first pod's device only is held"
    )
    assert len(prepared(cluster.node("node-b"))) == 0

    await team.delete(PODS, "first")

    assert (await team.runs("quiet")).spec.node_name == "node-a"
    (mirror,) = await team.mirrors("quiet")
    assert offered(mirror)
    assert await team.devices("quiet") == {Device("node-a", "a-0")}
    assert prepared(cluster.node("node-a")) == {mirror.metadata.uid: frozenset({"a-0"})}


async def test_a_second_pod_with_an_exclusive_claim_never_runs_beside_the_first(
    cluster: Cluster, team: Namespace
) -> None:
    await team.create(claim("mine"), pod("first", claims={"gpu": "mine"}))
    node = (await team.runs("first")).spec.node_name
    uid = (await team.client.get(BUILTIN_CLAIMS, "mine", team.name)).metadata.uid

    await team.create(pod("named", claims={"gpu": "mine"}, nodeName=node))
    await team.create(pod("bound", claims={"gpu": "mine"}, schedulerName="another"))
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": target}
    await team.client.create_subresource(PODS, "bound", "binding", binding, team.name)

    for name in ("named", "bound"):
        await team.waits(name, reasons.CLAIM_IN_USE)
        await kubelet_refused(team, name)
        assert (await team.client.get(PODS, name, team.name)).status.phase == "Pending"
        assert "waiting" in (await status(team, name))["state"]
    mirror = await team.client.get(BUILTIN_CLAIMS, "mine", team.name)
    assert [user.name for user in mirror.status.reserved_for] == ["first"]
    assert prepared(cluster.node(node)).keys() == {uid}
    assert calls(cluster, node, PREPARED).count(uid) == 1

    await team.delete(PODS, "bound")
    await team.delete(PODS, "first")
    await team.runs("named")


async def kubelet_refused(team: Namespace, name: str) -> None:
    """Return when the kubelet said that it does not give the claim to the pod."""

    def refusal(event: Event) -> bool:
        about = (event.regarding or {}).get("name") == name
        return (
            about
            and event.reason == "FailedPrepareDynamicResources"
            and "is not allowed to use ResourceClaim mine" in event.note
        )

    await until(
        team.client,
        EVENTS,
        lambda events: any(refusal(event) for event in events.values()),
        f"the kubelet refuses the claim to pod {name}",
        namespace=team.name,
    )


async def test_ordinary_dra_never_takes_a_device_that_the_node_plugins_publish(team: Namespace) -> None:
    await team.create(ordinary_class("everything", "true"), ordinary_claim("any", "everything"))

    await team.create(pod("ordinary", claims={"any": "any"}))

    refused = await team.pod(
        "ordinary", lambda p: any(c.reason == "Unschedulable" for c in p.status.conditions), "is refused"
    )
    (condition,) = [c for c in refused.status.conditions if c.reason == "Unschedulable"]
    assert condition.message.startswith("0/2 nodes are available: 2 cannot allocate all claims.")
    assert (await team.client.get(BUILTIN_CLAIMS, "any", team.name)).status.allocation is None
