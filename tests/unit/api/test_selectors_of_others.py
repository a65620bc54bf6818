"""Selectors that drivers write are compared with all nodes, in the controller's one thread: there is a limit to
what the API takes, and what it takes costs little for a node."""

from typing import Any

import msgspec
import pytest
from tests.support.effort import cpu_seconds

from parley.api import builtin
from parley.api.models import ClaimRelease, PodScheduling, ResourceClaim, ResourceClass
from parley.api.selectors import matches
from parley.kube.memory.structural_schema import broken_rules, schema_of

NODE = builtin.Node(builtin.ObjectMeta(name="a", labels={"zone": "1"}))


def selector(terms: int, requirements: int, values: int) -> dict[str, Any]:
    """All requirements hold for the node, but for the last of each term, so that nothing is left out."""
    given = {"values": [str(n) for n in range(values)]} if values else {}
    holds = {"key": "x", "operator": "NotIn" if values else "DoesNotExist", **given}
    last = {"key": "x", "operator": "Exists"}
    return {"nodeSelectorTerms": [{"matchExpressions": [holds] * (requirements - 1) + [last]}] * terms}


def objects_with(chosen: dict[str, Any]) -> list[tuple[type[Any], dict[str, Any]]]:
    answer = {"name": "c", "driverName": "d", "round": 1, "alternatives": {"nodeSelector": chosen}}
    allocation = {"availableOnNodes": chosen}
    return [
        (PodScheduling, {"status": {"claims": [answer]}}),
        (ResourceClaim, {"status": {"driverName": "d", "allocation": allocation}}),
        (ClaimRelease, {"spec": {"allocation": allocation}}),
        (ResourceClass, {"suitableNodes": chosen}),
    ]


LARGEST = [selector(15, 16, 0), selector(2, 16, 136), selector(1, 5, 1024)]


@pytest.mark.parametrize("chosen", LARGEST, ids=["requirements", "both", "values"])
def test_the_largest_that_the_api_takes_costs_little(chosen: dict[str, Any]) -> None:
    for kind, whole in objects_with(chosen):
        assert list(broken_rules(None, whole, schema_of(kind))) == []
    read = msgspec.convert(chosen, builtin.NodeSelector)
    assert cpu_seconds(lambda: [matches(read, NODE) for _ in range(10)]) < 0.05


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        (
            selector(16, 16, 0),
            "at most 256 terms and requirements are allowed in all: select nodes by fewer labels.",
        ),
        (
            selector(2, 16, 180),
            "at most 4096 values are allowed in all requirements: select nodes by a label that ",
        ),
    ],
    ids=["requirements", "values"],
)
def test_the_api_takes_no_larger_ones(chosen: dict[str, Any], why: str) -> None:
    """128 terms of 16 requirements with 180 values took 6 ms for each node."""
    for kind, whole in objects_with(chosen):
        (fault,) = broken_rules(None, whole, schema_of(kind))
        assert why in str(fault)
