"""What a claim requests is read back from its mirror as written, and is nothing if Parley did not write it."""

from typing import Any

import pytest
from tests.unit.control.builders import a_claim, read

from parley.api.builtin import BuiltinClaim
from parley.api.models import ClaimSpec, ParametersReference
from parley.api.resources import BUILTIN_CLAIMS
from parley.control.objects.class_request import (
    MAX_PARAMETERS_BYTES,
    ClassRequest,
    claim_spec,
    class_request,
    of_spec,
    parameters_too_large,
    unreadable,
)


def mirrored(spec: dict[str, Any]) -> BuiltinClaim:
    """A mirror with that `spec`."""
    return read(BUILTIN_CLAIMS, {"metadata": {}, "spec": spec})


def requesting(**fields: Any) -> tuple[ClaimSpec, dict[str, Any]]:
    """A claim's spec, and that of its mirror."""
    spec = ClaimSpec.model_validate({"resourceClassName": "licence", **fields})
    return spec, claim_spec(spec, shareable=False)


def configured(parameters: Any) -> BuiltinClaim:
    """A mirror in whose configuration somebody wrote these parameters."""
    _, mirror = requesting()
    mirror["devices"]["config"] = [{"opaque": {"driver": "parley.dev", "parameters": parameters}}]
    return mirrored(mirror)


@pytest.mark.parametrize("parameters", [{"count": 2}, {}, None])
def test_what_was_requested_is_read_back(parameters: Any) -> None:
    spec, mirror = requesting(**({} if parameters is None else {"parameters": parameters}))
    assert class_request(mirrored(mirror)) == of_spec(spec) == ClassRequest("licence", parameters)


@pytest.mark.parametrize(
    "reference", [{"kind": "ConfigMap", "name": "size"}, {"apiGroup": "x.y", "kind": "Z", "name": "z"}]
)
def test_a_reference_travels_by_itself(reference: dict[str, str]) -> None:
    _, mirror = requesting(parametersRef=reference)
    expected = ClassRequest("licence", None, ParametersReference.model_validate(reference))
    assert class_request(mirrored(mirror)) == expected
    (config,) = mirror["devices"]["config"]
    assert config["opaque"]["parameters"] == {"resourceClassName": "licence", "parametersRef": reference}


@pytest.mark.parametrize(
    "forged", [3, {}, {"kind": "ConfigMap", "name": "../../secrets/s"}, {"kind": "configmaps", "name": "x"}]
)
def test_a_reference_that_nobody_could_write_into_a_claim_is_none_of_ours(forged: Any) -> None:
    assert class_request(configured({"resourceClassName": "licence", "parametersRef": forged})) is None


@pytest.mark.parametrize(
    "parameters",
    [None, {}, {"resourceClassName": 7}, {"resourceClassName": "licence", "parameters": "text"}, "text"],
    ids=["none", "empty", "class-a-number", "parameters-a-text", "a-text"],
)
def test_a_configuration_that_parley_did_not_write_asks_for_nothing(parameters: Any) -> None:
    assert class_request(configured(parameters)) is None


def test_why_nobody_can_tell_what_is_asked_for() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    assert unreadable(configured({"resourceClassName": "licence"})) == ""
    mirror = configured({"resourceClassName": "licence", "parameters": {"n": deep}})
    assert unreadable(mirror) == "they nest deeper than 64 levels: make them flatter"
    assert class_request(mirror) is None


@pytest.mark.parametrize(("size", "expected"), [(MAX_PARAMETERS_BYTES, 0), (MAX_PARAMETERS_BYTES + 1,) * 2])
def test_parameters_may_be_so_large(size: int, expected: int) -> None:
    assert parameters_too_large(a_claim(parameters={"n": "x" * (size - len('{"n":""}'))}).spec) == expected


def test_parameters_are_as_large_as_the_api_server_stores_them() -> None:
    assert parameters_too_large(a_claim(parameters={"n": "<" * 2_000}).spec) == 12_008
