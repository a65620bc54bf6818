"""The server in memory knows every rule that the CRDs have; the conformance tests show that it has them right."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from parley.api.markers import RULES
from parley.api.models import PodScheduling, ResourceClaim, ResourceClaimTemplate, ResourceClass
from parley.kube.memory.structural_schema import RULES_IN_PYTHON, schema_of


def rules_of(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for entry in schema.get(RULES, ()):
            yield entry["rule"]
        for inner in schema.values():
            yield from rules_of(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from rules_of(inner)


@pytest.mark.parametrize("kind", [PodScheduling, ResourceClaim, ResourceClaimTemplate, ResourceClass])
def test_no_rule_of_a_crd_is_unknown(kind: type[BaseModel]) -> None:
    assert set(rules_of(schema_of(kind))) <= RULES_IN_PYTHON.keys()


def test_no_known_rule_is_out_of_use() -> None:
    kinds = (PodScheduling, ResourceClaim, ResourceClaimTemplate, ResourceClass)
    assert RULES_IN_PYTHON.keys() == {rule for kind in kinds for rule in rules_of(schema_of(kind))}
