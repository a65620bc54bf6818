"""What the schema of a CRD lets through, its model reads. tests/integration/api has the same on a real server."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.cluster.mutated import mutated

from parley.api.crd import KINDS, structural_schema
from parley.kube.memory.errors import Fault
from parley.kube.memory.schema import checker
from parley.kube.memory.structural_schema import broken_rules, settled


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.plural)
def test_what_a_schema_lets_through_the_model_reads(kind: Any) -> None:
    resource = kind.resource
    schema = structural_schema(resource.type)
    for common in ("apiVersion", "kind", "metadata"):
        del schema["properties"][common]
    check = checker(schema)

    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(mutated(schema))
    def compare(sent: dict[str, Any]) -> None:
        kept = settled(json.loads(json.dumps(sent).replace("\\ud800", "\\ufffd")), schema)
        faults: list[Fault] = []
        check(kept, None, faults)
        if not faults and not list(broken_rules(None, kept, schema)):
            resource.decode(json.dumps({**kept, "metadata": {"name": "a"}}).encode())

    compare()
