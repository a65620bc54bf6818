"""Objects that hold parameters: which one a reference names, and what is read of it."""

from typing import Any

import orjson
import pytest

from parley.api.models import ClassParametersReference, ParametersReference
from parley.api.resources import CONFIG_MAPS, Resource
from parley.sdk.referenced import (
    MAX_BYTES,
    InvalidParametersObject,
    ParametersObject,
    object_of,
    parameters_in,
    topic_of,
    version_in,
)

SIZES = Resource("disks.example.com", "v1", "sizes", "Size", True, dict[str, Any])
TIERS = Resource("disks.example.com", "v1", "tiers", "Tier", False, dict[str, Any])
KINDS = (SIZES, TIERS)


def claims(kind: str, group: str = "") -> ParametersReference:
    return ParametersReference(kind=kind, api_group=group, name="large")


def classes(kind: str, group: str = "", namespace: str = "") -> ClassParametersReference:
    return ClassParametersReference(kind=kind, api_group=group, name="large", namespace=namespace)


def test_a_claim_names_an_object_of_its_own_namespace() -> None:
    found = object_of(claims("ConfigMap"), "team", KINDS)
    assert found == ParametersObject(CONFIG_MAPS, "team", "large", "team")
    assert str(found) == "ConfigMap team/large"
    assert object_of(claims("Size", SIZES.group), "team", KINDS).resource == SIZES


def test_a_class_names_one_of_any_namespace_or_of_none() -> None:
    assert object_of(classes("Size", SIZES.group, "admins"), "", KINDS) == ParametersObject(
        SIZES, "admins", "large", ""
    )
    found = object_of(classes("Tier", SIZES.group), "", KINDS)
    assert (str(found), found.namespace) == ("Tier large", "")


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (
            claims("Secret"),
            "the driver takes no parameters from a Secret: name a ConfigMap or a Size of disks.example.com "
            "or a Tier of disks.example.com",
        ),
        (
            claims("Tier", TIERS.group),
            "Tier of disks.example.com is in no namespace: only a ResourceClass can name one",
        ),
        (classes("Size", SIZES.group), "Size of disks.example.com is in a namespace: name its namespace"),
        (classes("Tier", TIERS.group, "x"), "Tier of disks.example.com is in no namespace: leave namespace out"),
    ],
)
def test_another_object_is_refused_with_what_would_do(reference: ParametersReference, why: str) -> None:
    with pytest.raises(InvalidParametersObject) as refused:
        object_of(reference, "team", KINDS)
    assert str(refused.value) == why


def test_the_topic_is_known_without_the_driver() -> None:
    for reference, payer in ((claims("Size", SIZES.group), "team"), (classes("ConfigMap", "", "admins"), "")):
        assert topic_of(reference, payer) == object_of(reference, payer, KINDS).topic


CONFIG = ParametersObject(CONFIG_MAPS, "team", "large", "team")
SIZE = ParametersObject(SIZES, "team", "large", "team")


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 1


def answer(**fields: Any) -> bytes:
    return orjson.dumps({"metadata": {"name": "large", "resourceVersion": "7"}, **fields})


@pytest.mark.parametrize(
    ("wanted", "sent", "value"),
    [
        (CONFIG, answer(data={"parameters": "count: 2", "other": "x" * 500_000}), {"count": 2}),
        (CONFIG, answer(data={"parameters": '{"count": 2}'}), {"count": 2}),
        (SIZE, answer(spec={"gib": 40}, status={"any": "thing"}), {"gib": 40}),
        (SIZE, answer(), {}),
    ],
)
def test_parameters_are_under_one_key_or_in_the_spec(
    wanted: ParametersObject, sent: bytes, value: dict[str, Any]
) -> None:
    assert orjson.loads(parameters_in(wanted, sent)) == value


def test_the_version_is_read() -> None:
    assert version_in(answer()) == "7"
    assert version_in(b"[" * 100_000) == ""


UNREADABLE = "can't be read: it is nested too deeply, or is not valid Unicode"
NO_KEY = "has no data key 'parameters': put the parameters there, as YAML or JSON"
MOST = f"at most {MAX_BYTES} are allowed: shorten"


@pytest.mark.parametrize(
    ("wanted", "sent", "why"),
    [
        (CONFIG, answer(data={"size": "count: 2"}), NO_KEY),
        (CONFIG, answer(), NO_KEY),
        (
            CONFIG,
            answer(data={"parameters": "a: ["}),
            "data.parameters is neither YAML nor JSON: line 2: did not find expected node content",
        ),
        (
            CONFIG,
            answer(data={"parameters": "a: " + "x" * MAX_BYTES}),
            f"data.parameters has 10243 bytes, {MOST} it",
        ),
        (SIZE, answer(spec={"a": "x" * MAX_BYTES}), f"has 10248 bytes of parameters, {MOST} them"),
        (SIZE, answer(spec={"a": "x" * 5 * MAX_BYTES}), f"spec has 51208 bytes, {MOST} it"),
        (SIZE, answer(spec=[1]), "spec is not an object"),
        (SIZE, answer(spec={"a": nested(65)}), "spec nests deeper than 64 levels: make it flatter"),
        (SIZE, b'{"spec": {"a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}}", UNREADABLE),
        (SIZE, b'{"spec": {"a": "\\ud800"}}', UNREADABLE),
        (CONFIG, b'{"data": {"parameters": "\\ud800"}}', UNREADABLE),
        (CONFIG, b'{"data": {"parameters": 3}}', UNREADABLE),
        (CONFIG, b"<html>", UNREADABLE),
    ],
)
def test_what_can_be_no_parameters_is_refused(wanted: ParametersObject, sent: bytes, why: str) -> None:
    with pytest.raises(InvalidParametersObject) as refused:
        parameters_in(wanted, sent)
    assert str(refused.value) == why
