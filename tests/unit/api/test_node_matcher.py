"""A selector that is compared with many nodes: says the same as term by term, and costs less."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.support.effort import calls

from parley.api.builtin import Node, NodeSelector
from parley.api.selectors import NodeMatcher, matches

WORDS = st.sampled_from(["a", "b", "1", "2", "metadata.name"])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Unheard"])
REQUIREMENTS = st.lists(
    st.fixed_dictionaries({"key": WORDS, "operator": OPERATORS, "values": st.lists(WORDS, max_size=3)}), max_size=2
)
TERMS = st.lists(
    st.fixed_dictionaries({"matchExpressions": REQUIREMENTS, "matchFields": REQUIREMENTS}), max_size=4
)


def selector(*terms: dict[str, Any]) -> NodeSelector:
    found = msgspec.convert({"nodeSelectorTerms": list(terms)}, NodeSelector)
    assert len(found.node_selector_terms) == len(terms)
    return found


def node(name: str = "n", **labels: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)


@given(TERMS, st.lists(st.tuples(WORDS, st.dictionaries(WORDS, WORDS, max_size=3)), max_size=4))
def test_it_says_the_same_as_term_by_term(
    terms: list[dict[str, Any]], nodes: list[tuple[str, dict[str, str]]]
) -> None:
    chosen = selector(*terms)
    matcher = NodeMatcher(chosen)
    for name, labels in nodes:
        one = node(name, **labels)
        assert matcher.matches(one) == matches(chosen, one)


def one_value(number: int) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "rack", "operator": "In", "values": [f"r{number}"]}]}


def test_a_node_costs_no_more_with_many_terms_for_one_label() -> None:
    def cost(terms: int) -> int:
        matcher, other = NodeMatcher(selector(*map(one_value, range(terms)))), node(rack="another")
        assert not matcher.matches(other)
        return calls(lambda: matcher.matches(other))

    assert cost(250) == cost(2)
