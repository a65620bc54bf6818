"""What is allocated for one claim: where it can be used, which phases it goes through, what the API shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from tests.unit.control.builders import a_holding

from parley.api.builtin import Node, ObjectMeta
from parley.control.holding import Holding, Phase, Written
from parley.sdk import Allocation, NodeLabels


def test_a_claim_reaches_the_nodes_that_its_allocation_names() -> None:
    here = a_holding(node="node-1")
    both = a_holding(allocation=Allocation(available_on=("node-1", "node-2")))
    everywhere = a_holding(allocation=Allocation(available_on=None))
    reached = [[h.usable_on(node) for node in ("node-1", "node-2", "node-3")] for h in (here, both, everywhere)]
    assert reached == [[True, False, False], [True, True, False], [True, True, True]]
    assert (here.nodes, everywhere.nodes) == (("node-1",), None)


@dataclass(frozen=True)
class Known:
    """The cluster's nodes, which a test changes."""

    nodes: Mapping[str, Node]

    def node(self, name: str, /) -> Node | None:
        return self.nodes.get(name)

    def node_names(self) -> Sequence[str]:
        return sorted(self.nodes)


def test_a_claim_that_goes_by_labels_reaches_the_nodes_that_have_them_now() -> None:
    nodes = {name: Node(metadata=ObjectMeta(name=name, labels={"zone": "a"})) for name in ("node-1", "node-2")}
    zone = a_holding(allocation=Allocation(available_on=NodeLabels({"zone": "a"})), known_nodes=Known(nodes))
    assert (zone.usable_on("node-1"), zone.usable_on("node-3"), zone.only_node) == (True, False, None)

    nodes["node-3"] = nodes.pop("node-1")
    nodes["node-1"] = Node(metadata=ObjectMeta(name="node-1", labels={"zone": "b"}))

    assert [zone.usable_on(node) for node in ("node-1", "node-2", "node-3")] == [False, True, True]
    assert zone.may_run_on("node-1")  # its user there is none of a new one's business
    assert not a_holding(node="node-1").may_run_on("node-2")


class Fails(Exception):
    """The work of getting to a phase fails."""


def enter(holding: Holding, phase: Phase, *then: Phase) -> None:
    with holding.entering(phase):
        for further in then:
            holding.phase = further
        raise Fails


def test_a_phase_that_is_not_reached_leads_back_unless_the_work_has_gone_further() -> None:
    holding = a_holding()
    with pytest.raises(Fails):
        enter(holding, Phase.UNRESERVING)
    assert holding.joinable

    with pytest.raises(Fails), holding.entering(Phase.UNRESERVING):
        enter(holding, Phase.UNRESERVING, Phase.ENDING)
    assert holding.phase is Phase.ENDING
    assert not holding.joinable


@pytest.mark.parametrize(
    ("before", "lost", "overtaken"),
    [
        (Written.NO, Written.MAYBE, Written.NO),
        (Written.MAYBE, Written.MAYBE, Written.NO),
        (Written.YES, Written.UNSETTLED, Written.YES),
        (Written.UNSETTLED, Written.UNSETTLED, Written.YES),
    ],
)
def test_a_write_of_unknown_outcome_leaves_open_what_the_object_shows(
    before: Written, lost: Written, overtaken: Written
) -> None:
    assert (before.outcome_unknown(), before.settled()) == (lost, overtaken)
    assert not before.outcome_unknown().is_settled
    assert before.settled().is_settled
    assert before.outcome_unknown().is_known == before.settled().is_known == before.is_known
