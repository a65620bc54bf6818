"""Who is asked about which nodes, until when."""

from collections.abc import Iterator, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from parley.api.builtin import NodeSelector
from parley.negotiation.answers import Answer, Answers
from parley.negotiation.rounds import negotiate


class Nodes:
    def __init__(self, names: Sequence[str], unfit: frozenset[str] = frozenset()) -> None:
        self.names = names
        self.unfit = unfit

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if self.fits(name))

    def fits(self, node: str) -> bool:
        return node not in self.unfit

    def matching(self, selectors: Sequence[NodeSelector]) -> Iterator[str]:
        named = [
            {
                value
                for term in selector.node_selector_terms
                for field in term.match_fields
                for value in field.values
            }
            for selector in selectors
        ]
        return (name for name in self if all(name in names for names in named))


class Drivers:
    """Answers from sets of good nodes, one per claim, and records what was asked."""

    def __init__(self, good: dict[str, set[str]], alternatives: Mapping[str, tuple[str, ...] | None]) -> None:
        self.good = good
        self.alternatives = alternatives
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, nodes: Sequence[str]) -> Answers:
        self.asked.append(tuple(nodes))
        return {
            claim: Answer(
                tuple(n for n in nodes if n in good),
                self.alternatives.get(claim),
                {n: "taken" for n in nodes if n not in good},
            )
            for claim, good in self.good.items()
        }


NAMES = [f"n{i}" for i in range(12)]
node_sets = st.sets(st.sampled_from(NAMES))
opinions = st.none() | st.lists(st.sampled_from(NAMES), unique=True, max_size=6).map(tuple)


def test_the_first_round_ends_it_when_a_candidate_is_viable_for_all_claims() -> None:
    ask = Drivers({"a": {"n1", "n2"}, "b": {"n2"}}, {})
    outcome = negotiate(Nodes(NAMES), ask, limit=4)
    assert (outcome.round, outcome.viable, outcome.candidates) == (1, ("n2",), ("n0", "n1", "n2", "n3"))
    assert outcome.refused == {
        "n0": "claim a: taken, claim b: taken",
        "n1": "claim b: taken",
        "n3": "claim a: taken, claim b: taken",
    }


def test_the_next_candidates_are_what_all_drivers_propose_instead() -> None:
    ask = Drivers({"a": {"n9"}, "b": {"n9"}}, {"a": ("n8", "n9", "n10"), "b": ("n9", "n10")})
    outcome = negotiate(Nodes(NAMES, unfit=frozenset({"n10"})), ask, limit=2)
    assert ask.asked == [("n0", "n1"), ("n9",)]
    assert (outcome.round, outcome.viable) == (2, ("n9",))


def test_without_alternatives_every_fitting_node_is_asked_about_once() -> None:
    ask = Drivers({"a": {"n11"}}, {})
    outcome = negotiate(Nodes(NAMES), ask, limit=5)
    assert [node for asked in ask.asked for node in asked] == NAMES
    assert (outcome.round, outcome.viable) == (3, ("n11",))


def test_each_round_asks_about_twice_as_many_nodes_up_to_the_limit() -> None:
    ask = Drivers({"a": {"n11"}}, {})
    negotiate(Nodes(NAMES), ask, first=2, limit=5)
    assert [len(nodes) for nodes in ask.asked] == [2, 4, 5, 1]


def test_what_drivers_propose_is_asked_about_at_once_up_to_the_limit() -> None:
    ask = Drivers({"a": {"n9"}}, {"a": ("n5", "n6", "n7", "n8", "n9")})
    negotiate(Nodes(NAMES), ask, first=1, limit=5)
    assert ask.asked == [("n0",), ("n5", "n6", "n7", "n8", "n9")]


def test_a_driver_that_knows_of_no_other_node_ends_it() -> None:
    ask = Drivers({"a": set(), "b": {"n7"}}, {"a": ()})
    outcome = negotiate(Nodes(NAMES), ask, limit=3)
    assert len(ask.asked) == 1
    assert outcome.viable == ()


def test_no_fitting_node_means_no_question() -> None:
    ask = Drivers({"a": {"n1"}}, {})
    outcome = negotiate(Nodes(NAMES, unfit=frozenset(NAMES)), ask)
    assert (ask.asked, outcome.round, outcome.candidates) == ([], 0, ())


def test_enough_viable_nodes_are_collected_over_several_rounds() -> None:
    ask = Drivers({"a": set(NAMES)}, {})
    assert len(negotiate(Nodes(NAMES), ask, limit=2, enough=5).viable) == 6


@given(
    st.lists(node_sets, min_size=1, max_size=3),
    st.lists(opinions, min_size=3, max_size=3),
    node_sets,
    st.integers(1, 5),
)
def test_a_node_is_viable_only_if_it_fits_and_every_claim_says_so(
    good: list[set[str]], alternatives: list[tuple[str, ...] | None], unfit: set[str], limit: int
) -> None:
    claims = {f"c{i}": nodes for i, nodes in enumerate(good)}
    ask = Drivers(claims, {f"c{i}": opinion for i, opinion in enumerate(alternatives)})
    outcome = negotiate(Nodes(NAMES, frozenset(unfit)), ask, limit=limit, enough=3)
    for node in outcome.viable:
        assert node not in unfit
        assert all(node in nodes for nodes in good)
    asked = [node for nodes in ask.asked for node in nodes]
    assert len(asked) == len(set(asked))
    assert not set(asked) & unfit
    assert all(len(nodes) <= limit for nodes in ask.asked)


@given(st.lists(node_sets, min_size=1, max_size=3), node_sets)
def test_what_is_viable_is_found_when_no_driver_claims_to_know_better(
    good: list[set[str]], unfit: set[str]
) -> None:
    claims = {f"c{i}": nodes for i, nodes in enumerate(good)}
    outcome = negotiate(Nodes(NAMES, frozenset(unfit)), Drivers(claims, {}), limit=2)
    assert bool(outcome.viable) == bool(set.intersection(*good) - unfit)


@given(st.permutations(["a", "b", "c"]), st.data())
def test_the_order_of_the_claims_does_not_matter(order: list[str], data: st.DataObject) -> None:
    good = {claim: data.draw(node_sets) for claim in "abc"}
    alternatives = {claim: data.draw(st.none() | st.just(("n5", "n6", "n7"))) for claim in "abc"}
    one = negotiate(Nodes(NAMES), Drivers(good, alternatives), limit=3)
    other = negotiate(Nodes(NAMES), Drivers({c: good[c] for c in order}, alternatives), limit=3)
    assert (one.viable, one.round, one.candidates) == (other.viable, other.round, other.candidates)
