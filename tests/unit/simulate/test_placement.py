"""Placement: which node the simulated scheduler takes, what it says if there is none, whose claims it blames."""

from typing import Any

import msgspec
import orjson
import pytest

from parley.api.builtin import BuiltinClaim, Node, PodStatus
from parley.api.resources import BUILTIN_CLAIMS, NODES
from parley.kube.clock import moment
from parley.simulate.anti_affinity import PODS, Pod, conflicting_topology_keys
from parley.simulate.placement import NodeInfo, binding_failed, place, ready_to_bind
from parley.simulate.pod_claims import reserved_by_others


def node(name: str, cpu: str = "4", **spec: Any) -> Node:
    return NODES.decode(
        orjson.dumps(
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": name[0]}},
                "spec": spec,
                "status": {"allocatable": {"cpu": cpu, "pods": "2"}},
            }
        )
    )


def pod(name: str, cpu: str = "1", apart_from: str = "", namespace: str = "team", key: str = "") -> Pod:
    term = {"labelSelector": {"matchLabels": {"app": apart_from}}, "topologyKey": key or "kubernetes.io/hostname"}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term] if apart_from else []}
    return PODS.decode(
        orjson.dumps(
            {
                "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": {"app": name}},
                "spec": {
                    "containers": [{"resources": {"requests": {"cpu": cpu}}}],
                    "affinity": {"podAntiAffinity": rules},
                },
            }
        )
    )


def claim(*nodes: str, **status: Any) -> BuiltinClaim:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in nodes]
    allocation = {"nodeSelector": {"nodeSelectorTerms": terms}, **status.pop("allocation", {})}
    body = {"metadata": {"name": "c", "uid": "c"}, "status": {"allocation": allocation, **status}}
    return BUILTIN_CLAIMS.decode(orjson.dumps(body))


def cluster(**pods: list[Pod]) -> dict[str, NodeInfo]:
    return {name: NodeInfo(node(name), there) for name, there in pods.items()}


def test_the_node_with_the_fewest_pods_is_taken() -> None:
    assert place(pod("p"), [], cluster(a1=[pod("x")], a2=[], b1=[])).node == "a2"


def test_the_nominated_node_is_taken_if_it_does() -> None:
    nominated = msgspec.structs.replace(pod("p"), status=msgspec.convert({"nominatedNodeName": "a1"}, PodStatus))

    assert place(nominated, [claim("a1", "a2")], cluster(a1=[pod("x")], a2=[])).node == "a1"
    assert place(nominated, [claim("a1", "a2")], cluster(a1=[pod("x", cpu="4")], a2=[])).node == "a2"
    assert place(nominated, [claim("a2")], cluster(a1=[], a2=[])).node == "a2"


def test_a_claim_draws_the_pod_to_its_node() -> None:
    assert place(pod("p"), [claim("b1")], cluster(a1=[], a2=[], b1=[pod("x")])).node == "b1"


def test_a_claim_that_refuses_nodes_is_blamed_only_if_the_pod_fits_there_otherwise() -> None:
    elsewhere = claim("b1")
    full = {"a1": NodeInfo(node("a1"), []), "b1": NodeInfo(node("b1", cpu="0"), [])}

    placement = place(pod("p"), [elsewhere], full)

    assert placement.node == ""
    assert placement.message == (
        "0/2 nodes are available: 1 node(s) too little cpu left, 1 resourceclaim not available on the node."
    )
    assert placement.unavailable == (elsewhere,)


def test_no_claim_is_blamed_when_every_node_is_full() -> None:
    placement = place(pod("p", cpu="9"), [claim("b1")], cluster(a1=[], b1=[]))

    assert placement.message == "0/2 nodes are available: 2 node(s) too little cpu left."
    assert placement.unavailable == ()


def test_a_cluster_without_nodes() -> None:
    assert place(pod("p"), [], {}).message == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("new", "there"),
    [
        pytest.param(pod("p", apart_from="web"), pod("web"), id="the new pod keeps away"),
        pytest.param(pod("p"), pod("web", apart_from="p"), id="the pod that is there keeps others away"),
    ],
)
def test_pods_that_must_not_share_a_node(new: Pod, there: Pod) -> None:
    assert place(new, [], cluster(a1=[there], a2=[there])).message == (
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    )
    assert place(new, [], cluster(a1=[there], a2=[])).node == "a2"


def test_pods_that_must_not_share_a_zone() -> None:
    new = pod("p", apart_from="web", key="zone")

    assert place(new, [], cluster(a1=[pod("web")], a2=[], b1=[])).node == "b1"


def test_anti_affinity_stops_at_the_namespace() -> None:
    assert conflicting_topology_keys(pod("p", apart_from="web"), pod("web", namespace="other")) == frozenset()


RESULT = {
    "driver": "d.dev",
    "pool": "p",
    "device": "x",
    "bindingConditions": ["ready"],
    "bindingFailureConditions": ["declined"],
}


def conditions(**states: str) -> list[dict[str, Any]]:
    listed = [{"type": kind, "status": status} for kind, status in states.items()]
    return [{"driver": "d.dev", "pool": "p", "device": "x", "conditions": listed}]


@pytest.mark.parametrize(
    ("devices", "ready", "failed"),
    [
        ([], False, False),
        (conditions(ready="False"), False, False),
        (conditions(ready="True"), True, False),
        (conditions(declined="True"), False, True),
        (conditions(ready="True", declined="False"), True, False),
    ],
)
def test_binding_conditions(devices: list[dict[str, Any]], ready: bool, failed: bool) -> None:
    offered = claim("a1", allocation={"devices": {"results": [RESULT]}}, devices=devices)

    assert (ready_to_bind(offered), binding_failed(offered)) == (ready, failed)


@pytest.mark.parametrize(("now", "node"), [("12:10:00", "a1"), ("12:10:01", "")])
def test_an_offer_that_was_not_met_within_600_s_is_to_be_taken_back(now: str, node: str) -> None:
    allocation = {"allocationTimestamp": "2026-01-01T12:00:00Z", "devices": {"results": [RESULT]}}
    offered = claim("a1", allocation=allocation)

    found = place(pod("p"), [offered], cluster(a1=[]), moment(f"2026-01-01T{now}Z"))

    assert (found.node, found.unavailable) == (node, () if node else (offered,))


def test_an_allocation_without_binding_conditions_is_ready() -> None:
    assert ready_to_bind(claim("a1"))


def test_a_reservation_of_the_pod_itself_is_nobody_elses() -> None:
    mine = claim("a1", reservedFor=[{"resource": "pods", "name": "p", "uid": "p"}])

    assert not reserved_by_others(mine, pod("p"))
    assert reserved_by_others(mine, pod("q"))
