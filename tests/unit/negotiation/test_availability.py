"""Where something can be used: names, labels and any other selector, as nodes are at the moment."""

from collections.abc import Mapping, Sequence, Set

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.api.builtin import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from parley.negotiation.availability import (
    AvailableOn,
    NodeLabels,
    SelectedNodes,
    places,
    read_selector,
    selector_body,
    words,
)
from parley.negotiation.nowhere import in_common, no_common_node, where

NAMES = ("n0", "n1", "n2", "n3", "n4")
Cluster = Mapping[str, Mapping[str, str]]
"""Labels of the nodes by their names."""


class Nodes:
    """A cluster whose nodes change."""

    def __init__(self, labels: Cluster) -> None:
        self.labels = labels

    def node(self, name: str, /) -> Node | None:
        found = self.labels.get(name)
        return Node(metadata=ObjectMeta(name=name, labels=dict(found))) if found is not None else None

    def node_names(self) -> Sequence[str]:
        return sorted(self.labels)


values = st.sampled_from(["", "a", "b"])
labels = st.fixed_dictionaries({}, optional={"zone": values, "rack": values})
some_labels = st.one_of(
    st.fixed_dictionaries({"zone": values}, optional={"rack": values}), st.fixed_dictionaries({"rack": values})
)
clusters = st.dictionaries(st.sampled_from(NAMES), labels)
limited = st.one_of(
    st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple), some_labels.map(NodeLabels)
)
availabilities = st.none() | limited


def naive(on: AvailableOn, cluster: Cluster) -> set[str]:
    if on is None:
        return set(NAMES)
    if isinstance(on, NodeLabels):
        return {name for name, has in cluster.items() if on.labels.items() <= has.items()}
    assert isinstance(on, tuple)
    return set(on)


@given(st.lists(availabilities, max_size=4), clusters, clusters)
def test_they_hold_the_nodes_that_a_naive_model_says_also_when_nodes_have_changed(
    several: list[AvailableOn], before: Cluster, after: Cluster
) -> None:
    nodes = Nodes(before)
    found = [places(on, nodes) for on in several]
    common = in_common(found)
    for cluster in (before, after):
        nodes.labels = cluster
        each = [naive(on, cluster) for on in several]
        for one, expected in zip(found, each, strict=True):
            assert {name for name in NAMES if one is None or name in one} == expected
            assert one is None or set(one) == expected
        expected = set(NAMES).intersection(*each)
        assert {name for name in NAMES if common is None or name in common} == expected
        assert common is None or (set(common) == expected and len(common) == len(expected))
        assert common is None or bool(common) == bool(expected)


@given(st.lists(limited, min_size=2, max_size=3), clusters)
def test_claims_are_apart_if_no_node_has_them_all_and_they_do_not_go_by_the_same_labels(
    several: list[AvailableOn], cluster: Cluster
) -> None:
    found = {f"team/{index}": places(on, Nodes(cluster)) for index, on in enumerate(several)}
    ways = {frozenset(on) if isinstance(on, tuple) else str(on) for on in several}
    none_in_common = not set(NAMES).intersection(*(naive(on, cluster) for on in several))
    assert bool(no_common_node(found)) == (none_in_common and len(ways) > 1)


def test_the_message_of_claims_that_are_apart_says_by_what() -> None:
    nodes = Nodes({"n0": {"zone": "a"}, "n1": {"zone": "b"}})
    found = {"team/disk": places(NodeLabels({"zone": "a"}), nodes), "team/gpu": places(("n1",), nodes)}
    assert no_common_node(found) == (
        "no node has all claims of the pod: claim team/disk is allocated on nodes with zone=a; claim team/gpu is "
        "allocated on node n1. Remedy: delete those on one of the nodes to start over"
    )


@given(limited)
def test_what_a_selector_says_is_read_back(on: AvailableOn) -> None:
    assert on is not None
    assert read_selector(msgspec.convert(selector_body(on), NodeSelector)) == on


def term(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=[_needs(key, operator, *values)])


def _needs(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values))


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [
        ([term("zone", "In", "a", "b")], {"n0", "n1"}),
        ([term("zone", "In", "a"), term("zone", "In", "b")], {"n0", "n1"}),
        ([term("zone", "NotIn", "a")], {"n1", "n2"}),
        ([term("zone", "Exists")], {"n0", "n1"}),
        ([NodeSelectorTerm(match_expressions=[_needs("zone", "In", "a"), _needs("zone", "In", "b")])], set()),
        ([NodeSelectorTerm(match_fields=[_needs("metadata.name", "NotIn", "n0")])], {"n1", "n2"}),
        ([], set()),
    ],
)
def test_any_other_selector_is_kept_and_holds_what_kubernetes_says(
    terms: list[NodeSelectorTerm], nodes: set[str]
) -> None:
    selector = NodeSelector(node_selector_terms=terms)
    assert read_selector(selector) == selector
    found = places(selector, Nodes({"n0": {"zone": "a"}, "n1": {"zone": "b"}, "n2": {}}))
    assert isinstance(found, SelectedNodes)
    assert set(found) == nodes
    assert words(selector) == "the nodes that its status selects"


def test_equal_are_those_that_select_in_the_same_way_whatever_nodes_there_are() -> None:
    one, other = Nodes({"n0": {"zone": "a"}}), Nodes({})
    zone = NodeLabels({"zone": "a"})
    assert places(zone, one) == places(zone, other)
    assert hash(places(zone, one)) == hash(places(zone, other))
    assert places(zone, other) != places(NodeLabels({"zone": "b"}), other)
    narrowed = in_common([places(zone, one), ("n0", "n1")])
    assert isinstance(narrowed, Set)
    assert narrowed != places(zone, one)
    assert where(places(zone, one)) == "allocated on nodes with zone=a"
