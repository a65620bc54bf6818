"""Where an allocation can be used, by what a driver recorded."""

from typing import Any

import pytest

from parley.api.selectors import node_selector
from parley.conformance.checks.allocating import available

LABELS = {"topology.kubernetes.io/zone": "a"}
TWO_NAMES = {"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}


def by_label(zone: str) -> dict[str, Any]:
    needed = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [needed]}]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, True),
        (node_selector(["n1", "n2"]), True),
        (node_selector(["n2"]), False),
        ({"nodeSelectorTerms": [{"matchFields": [TWO_NAMES]}]}, False),
        (by_label("a"), True),
        (by_label("b"), False),
        ({"nodeSelectorTerms": [{**by_label("a")["nodeSelectorTerms"][0], "matchFields": [TWO_NAMES]}]}, False),
    ],
    ids=[
        "everywhere",
        "its name",
        "another name",
        "two names in one term",
        "its zone",
        "another zone",
        "name and zone",
    ],
)
def test_an_allocation_can_be_used_on_a_node_by_a_term_for_its_name_or_for_its_labels(
    selector: Any, expected: bool
) -> None:
    allocation = {"availableOnNodes": selector} if selector is not None else {}
    assert available(allocation, "n1", LABELS) is expected
