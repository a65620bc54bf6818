"""Why no node will do, and where a claim is, in words."""

from collections.abc import Mapping

import pytest

from parley.api import reasons
from parley.negotiation.nowhere import no_common_node, no_node_available, where


@pytest.mark.parametrize(
    ("total", "misfits", "refused", "asked", "expected"),
    [
        (
            0,
            {},
            {},
            False,
            (
                reasons.NO_CANDIDATES,
                "0 of 0 nodes are available: the cluster has no nodes. Remedy: add a node",
            ),
        ),
        (
            2,
            {"a": "cordoned", "b": "cordoned"},
            {},
            False,
            (
                reasons.NO_CANDIDATES,
                "0 of 2 nodes are available: nodes a, b: cordoned. "
                "Remedy: change what rules out one of these nodes, or add a node",
            ),
        ),
        (
            2,
            {"a": "cordoned"},
            {"b": "claim gpu: 0 of 1 device free"},
            True,
            (
                reasons.NOTHING_VIABLE,
                "0 of 2 nodes are available: node a: cordoned; node b: claim gpu: 0 of 1 device free. "
                "Remedy: free resources, request less, or add nodes that have what is requested",
            ),
        ),
        (
            2,
            {},
            {},
            True,
            (
                reasons.NOTHING_VIABLE,
                "0 of 2 nodes are available: no driver gave a reason. "
                "Remedy: see the logs of the claims' drivers, or add a node",
            ),
        ),
    ],
    ids=["no-nodes", "misfits", "refused", "refused-without-reasons"],
)
def test_why_no_node_will_do(
    total: int, misfits: Mapping[str, str], refused: Mapping[str, str], asked: bool, expected: tuple[str, str]
) -> None:
    assert no_node_available(total, misfits, refused, asked=asked) == expected


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (None, "allocated and usable on every node"),
        (("a",), "allocated on node a"),
        (("a", "b"), "allocated on nodes a, b"),
    ],
    ids=["everywhere", "one", "two"],
)
def test_where_a_claim_is(nodes: tuple[str, ...] | None, words: str) -> None:
    assert where(nodes) == words


def test_more_nodes_are_no_remedy_where_what_is_asked_for_belongs_to_none() -> None:
    _, message = no_node_available(1, {}, {"a": "0 of 3 tokens free, 4 wanted"}, asked=True, on_nodes=False)
    assert message.endswith("Remedy: delete pods that hold some, request less, or enlarge the pool of the class")


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({}, ""),
        ({"team/a": ("x",), "team/b": ("x", "y"), "team/c": None}, ""),
        ({"team/a": None, "team/b": None}, ""),
        (
            {"team/a": ("x",), "team/b": None, "team/c": ("y", "z")},
            "no node has all claims of the pod: claim team/a is allocated on node x; claim team/c is allocated on "
            "nodes y, z. Remedy: delete those on one of the nodes to start over",
        ),
    ],
)
def test_claims_that_no_node_has_are_named_with_their_nodes(
    claims: Mapping[str, tuple[str, ...] | None], message: str
) -> None:
    assert no_common_node(claims) == message


@pytest.mark.parametrize(
    ("misfits", "refused", "on_nodes", "message"),
    [
        (
            {},
            {"a": "claim gpu: 0 of 1 device free"},
            True,
            "the pod is bound to node a: claim gpu: 0 of 1 device free. Remedy: free resources on that node, or "
            "recreate the pod, and let its scheduler choose the node",
        ),
        (
            {"a": "does not exist"},
            {},
            True,
            "the pod is bound to node a: does not exist. Remedy: change what rules that node out, or recreate the "
            "pod, and let its scheduler choose the node",
        ),
        (
            {},
            {"a": "claim seat: 0 of 3 tokens of class seats free"},
            False,
            "the pod is bound to node a: claim seat: 0 of 3 tokens of class seats free. Remedy: delete pods that "
            "hold some, request less, or enlarge the pool of the class",
        ),
    ],
)
def test_a_pod_that_is_bound_is_not_told_to_add_nodes(
    misfits: Mapping[str, str], refused: Mapping[str, str], on_nodes: bool, message: str
) -> None:
    told = no_node_available(3, misfits, refused, asked=bool(refused), on_nodes=on_nodes, bound_to="a")

    assert told == (reasons.NOTHING_VIABLE if refused else reasons.NO_CANDIDATES, message)
