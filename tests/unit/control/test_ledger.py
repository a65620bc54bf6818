"""The ledger finds every holding by its claim and by its pods, and counts it as long as it is there."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.control.builders import NAMESPACE, a_class, a_holding, user

from parley.control.holding import Holding, Phase
from parley.control.ledger import Ledger
from parley.control.limits import Limits
from parley.negotiation.availability import AvailableOn
from parley.sdk import Allocation, NodeLabels, PodReference


def test_a_holding_is_found_by_its_claim_and_by_each_of_its_pods() -> None:
    ledger, holding = Ledger(), a_holding("c", "first", "second")
    ledger.add(holding)
    assert ledger.get("uid-c") is ledger.of_claim(NAMESPACE, "c") is holding
    assert ledger.of_pod(user("first")) == ledger.of_pod(user("second")) == [holding]
    assert (len(ledger), list(ledger)) == (1, [holding])


def test_a_pod_of_the_same_name_that_came_later_uses_nothing_but_its_name_finds_the_holding() -> None:
    ledger, holding = Ledger(), a_holding("c", "p")
    ledger.add(holding)
    assert ledger.of_pod(PodReference(NAMESPACE, "p", "uid-of-the-next")) == []
    assert ledger.of_pod_name(NAMESPACE, "p") == [holding]


def test_when_one_of_two_pods_of_a_name_leaves_the_name_still_finds_the_holding() -> None:
    ledger, holding, later = Ledger(), a_holding("c", "p"), PodReference(NAMESPACE, "p", "uid-of-the-next")
    ledger.add(holding)
    ledger.join(holding, later)
    ledger.leave(holding, user("p"))
    assert ledger.of_pod_name(NAMESPACE, "p") == [holding]
    assert ledger.of_pod(later) == [holding]


def test_a_dropped_holding_leaves_the_claim_to_the_one_that_took_its_name() -> None:
    ledger, earlier, later = Ledger(), a_holding("c", uid="uid-earlier"), a_holding("c", uid="uid-later")
    ledger.add(earlier)
    ledger.add(later)
    ledger.drop(earlier)
    assert ledger.of_claim(NAMESPACE, "c") is later


def test_what_is_superseded_is_found_by_its_name_as_long_as_it_is_there() -> None:
    ledger, held = Ledger(), a_holding("c", uid="uid-1")
    ending = a_holding("c", uid="uid-2", phase=Phase.UNRESERVING)
    current = a_holding("c", uid="uid-3")
    for holding in (held, ending, current):
        ledger.add(holding)
    assert ledger.of_claim(NAMESPACE, "c") is current
    for gone, left in ((held, [current, ending]), (current, [ending]), (ending, [])):
        ledger.drop(gone)
        assert ledger.all_of_claim(NAMESPACE, "c") == left


def test_a_holding_that_replaces_another_is_on_its_own_node_only() -> None:
    ledger = Ledger()
    ledger.add(a_holding(node="node-1"))
    ledger.add(a_holding(node="node-2"))
    assert (list(ledger.nodes()), len(ledger.on("node-1")), len(ledger.on("node-2"))) == (["node-2"], 0, 1)


def test_what_a_holding_needs_is_known_as_long_as_it_is_there() -> None:
    ledger, shown = Ledger(), a_holding("shown")
    views = [replace(a_holding(name), uses=(shown.uid,)) for name in ("one", "other")]
    for holding in (shown, *views):
        ledger.add(holding)
    assert list(ledger.used_by(shown)) == views
    assert list(ledger.used_by(views[0])) == []
    for left in ([views[1]], []):
        ledger.drop(next(iter(ledger.used_by(shown))))
        assert list(ledger.used_by(shown)) == left


def test_an_entry_finds_what_was_generated_for_it_and_no_named_claim() -> None:
    ledger = Ledger()
    ledger.add(a_holding("named", "p", entry="gpu"))
    assert ledger.of_entry(user("p"), "gpu") is None
    generated = a_holding("generated", "p", entry="gpu", named=False)
    ledger.add(generated)
    assert ledger.of_entry(user("p"), "gpu") is generated
    assert ledger.of_entry(user("p"), "other") is None


def test_what_a_driver_outside_is_allocating_is_kept_for_the_pod_and_counted() -> None:
    ledger, class_ = Ledger(), a_class(limits=[{"claims": 1}])
    ledger.expect(user("p"), "c", "uid-c", "licence")
    assert ledger.expected_for(NAMESPACE, "c") == user("p")
    assert ledger.limits.excess(class_, NAMESPACE, {"uid-other": 1})
    assert ledger.end_expected(user("p")) == [(NAMESPACE, "c")]
    assert ledger.expected_for(NAMESPACE, "c") is None
    assert not ledger.limits.excess(class_, NAMESPACE, {"uid-other": 1})
    assert ledger.end_expected(user("p")) == []


def test_what_was_allocated_meanwhile_stays_counted() -> None:
    ledger, class_ = Ledger(), a_class(limits=[{"claims": 1}])
    ledger.expect(user("p"), "c", "uid-c", "licence")
    ledger.add(a_holding("c", "p", class_name="licence"))
    ledger.end_expected(user("p"))
    assert ledger.limits.excess(class_, NAMESPACE, {"uid-other": 1})


def test_of_several_pods_for_which_a_claim_is_expected_the_last_one_counts() -> None:
    ledger, class_ = Ledger(), a_class(limits=[{"claims": 1}])
    ledger.expect(user("p"), "c", "uid-c", "licence")
    ledger.expect(user("q"), "c", "uid-new", "licence")
    assert ledger.expected_for(NAMESPACE, "c") == user("q")
    assert (ledger.expects(user("p")), ledger.end_expected(user("p"))) == (False, [])
    assert not ledger.limits.excess(class_, NAMESPACE, {"uid-new": 1})
    assert ledger.end_expected(user("q")) == [(NAMESPACE, "c")]
    assert ledger.expected_for(NAMESPACE, "c") is None


ZONE = NodeLabels({"zone": "a"})
CLAIMS = st.sampled_from(["a", "b", "c"])
PODS = st.sampled_from([user("p"), user("q"), PodReference(NAMESPACE, "p", "uid-of-the-next")])


class Lives(RuleBasedStateMachine):
    """Whatever happens to holdings, what the ledger finds agrees with the users that each of them has."""

    def __init__(self) -> None:
        super().__init__()
        self.freed: list[tuple[str, ...]] = []
        self.ledger = Ledger(Limits(self.freed.append))
        self.held: dict[str, Holding] = {}

    @rule(claim=CLAIMS, pod=PODS, on=st.sampled_from([(), ("a",), ("b",), ("a", "b"), ZONE, None]))
    def allocate(self, claim: str, pod: PodReference, on: AvailableOn) -> None:
        if claim not in self.held:
            allocation = Allocation(available_on=on)
            fields = {"class_name": "licence", "pods": {pod.uid: pod}, "allocation": allocation}
            self.held[claim] = a_holding(claim, node="b", **fields)
            self.ledger.add(self.held[claim])

    @precondition(lambda self: self.held)
    @rule(data=st.data(), pod=PODS)
    def join(self, data: st.DataObject, pod: PodReference) -> None:
        self.ledger.join(self._any(data), pod)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), pod=PODS)
    def leave(self, data: st.DataObject, pod: PodReference) -> None:
        self.ledger.leave(self._any(data), pod)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        holding, before = self._any(data), len(self.freed)
        self.ledger.drop(holding)
        assert len(self.freed) == before + 1
        del self.held[holding.claim]

    def _any(self, data: st.DataObject) -> Holding:
        return self.held[data.draw(st.sampled_from(sorted(self.held)))]

    @invariant()
    def each_is_found_by_its_claim(self) -> None:
        assert set(map(id, self.ledger)) == set(map(id, self.held.values()))
        for claim in ("a", "b", "c"):
            assert self.ledger.of_claim(NAMESPACE, claim) is self.held.get(claim)

    @invariant()
    def each_is_found_by_its_pods_and_by_no_other(self) -> None:
        for pod in (user("p"), user("q"), PodReference(NAMESPACE, "p", "uid-of-the-next")):
            used = {claim for claim, holding in self.held.items() if pod.uid in holding.pods}
            assert {holding.claim for holding in self.ledger.of_pod(pod)} == used
        named = {
            claim for claim, holding in self.held.items() if any(p.name == "p" for p in holding.pods.values())
        }
        assert {holding.claim for holding in self.ledger.of_pod_name(NAMESPACE, "p")} == named

    @invariant()
    def each_is_found_on_the_one_node_where_it_can_be_used(self) -> None:
        found = {node: {holding.claim for holding in self.ledger.on(node)} for node in ("a", "b")}
        one = {
            claim: h.nodes[0] for claim, h in self.held.items() if isinstance(h.nodes, tuple) and len(h.nodes) == 1
        }
        assert found == {node: {claim for claim in one if one[claim] == node} for node in ("a", "b")}
        assert set(self.ledger.nodes()) == set(one.values())

    @invariant()
    def each_is_counted_once(self) -> None:
        for most in range(4):
            full = self.ledger.limits.excess(a_class(limits=[{"claims": most}]), NAMESPACE, {"new": 1})
            assert bool(full) == (len(self.held) + 1 > most)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
