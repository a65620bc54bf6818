"""The table of nodes says the same as a look at every node and every pod would."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from parley.api.builtin import Node
from parley.api.resources import NODES
from parley.negotiation.requests import requested
from parley.simulate.anti_affinity import PODS, Pod
from parley.simulate.node_table import NodeInfo, NodeTable
from parley.simulate.placement import place

NAMES = ("a", "b", "c")


def node(name: str, cpu: int) -> Node:
    body: dict[str, Any] = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
    return NODES.decode(orjson.dumps({**body, "status": {"allocatable": {"cpu": str(cpu), "pods": "3"}}}))


def pod(uid: str, cpu: int, apart: bool) -> Pod:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}} if apart else None
    spec = {"containers": [{"resources": {"requests": {"cpu": str(cpu)}}}], "affinity": rules}
    body = {"metadata": {"name": uid, "namespace": "team", "uid": uid, "labels": {"app": "x"}}}
    return PODS.decode(orjson.dumps({**body, "spec": {key: value for key, value in spec.items() if value}}))


uids = st.sampled_from([f"p{number}" for number in range(6)])
steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.integers(1, 6)),
    st.tuples(st.just("drop"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("place"), uids, st.tuples(st.sampled_from(NAMES), st.integers(0, 3), st.booleans())),
    st.tuples(st.just("remove"), uids, st.just(0)),
)


class Plain:
    """Nodes and pods, without any sums."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[str, Pod]] = {}

    def occupied(self) -> dict[str, NodeInfo]:
        return {
            name: NodeInfo(node, [pod for on, pod in self.pods.values() if on == name])
            for name, node in self.nodes.items()
        }


def apply(table: NodeTable, plain: Plain, step: tuple[str, str, Any]) -> None:
    what, name, detail = step
    if what == "put":
        plain.nodes[name] = node(name, detail)
        table.put(plain.nodes[name])
    elif what == "drop":
        plain.nodes.pop(name, None)
        table.drop(name)
    elif what == "place":
        plain.pods[name] = (detail[0], pod(name, detail[1], detail[2]))
        table.place(plain.pods[name][1], detail[0])
    else:
        plain.pods.pop(name, None)
        table.remove(name)


@given(st.lists(steps, max_size=25), st.integers(0, 4), st.booleans())
def test_sums_order_and_placement_are_those_of_a_full_look(steps: list[Any], cpu: int, apart: bool) -> None:
    table, plain = NodeTable(), Plain()
    for step in steps:
        apply(table, plain, step)
    occupied = plain.occupied()

    assert set(table) == set(occupied)
    for name, known in table.items():
        assert sorted(p.metadata.uid for p in known.pods) == sorted(p.metadata.uid for p in occupied[name].pods)
        assert known.used["cpu"] == sum(requested(p).get("cpu", 0) for p in occupied[name].pods)
    fewest = sorted(occupied, key=lambda name: (len(occupied[name].pods), name))
    assert list(table.fewest_first()) == fewest == list(table.fewest_first())
    new = pod("new", cpu, apart)
    assert place(new, [], table) == place(new, [], occupied)
