"""What of opaque parameters is read, and how an object is read that has some which can't be."""

import json
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.api.opaque import MAX_BYTES, MAX_DEPTH, read, why_unreadable, without_unreadable
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, Undecodable

DEEP = f"they nest deeper than {MAX_DEPTH} levels: make them flatter"
HOSTILE: dict[str, bytes] = {
    "half a surrogate pair": b'{"a": "\\ud800"}',
    "no UTF-8": b'{"a": "\xff\xfe"}',
    "250 deep": b'{"a":' * 250 + b"1" + b"}" * 250,
    "2,000 deep": b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    "2,000 lists deep": b'{"a":' + b"[" * 2_000 + b"]" * 2_000 + b"}",
    "infinite": b'{"a": 1e400}',
    "a number of 5,000 digits": b'{"a": ' + b"9" * 5_000 + b"}",
}
hostile = pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE)


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def builtin(parameters: bytes, data: bytes = b"{}") -> bytes:
    return (
        b'{"metadata": {"name": "c", "uid": "u", "resourceVersion": "7"}, "spec": {"devices": '
        b'{"requests": [{"name": "exclusive"}], "config": [{"opaque": {"driver": "parley.dev", "parameters": '
        + parameters
        + b'}}]}}, "status": {"allocation": {"devices": {'
        b'"results": [{"driver": "d", "pool": "p", "device": "x"}], '
        b'"config": [{"opaque": {"driver": "d", "parameters": '
        + parameters
        + b'}}]}}, "reservedFor": [{"name": "pod", "uid": "pod-uid"}], "devices": [{"driver": "d", "data": '
        + data
        + b"}]}}"
    )


@hostile
def test_what_nobody_can_read_says_why(parameters: bytes) -> None:
    why = why_unreadable(read(msgspec.Raw(parameters)))

    assert why.startswith(("they nest deeper than 64 levels", "they are not JSON that can be read"))


@hostile
def test_a_built_in_claim_keeps_its_status_whatever_its_parameters_are(parameters: bytes) -> None:
    claim = BUILTIN_CLAIMS.decode(builtin(parameters, data=parameters))

    assert claim.metadata.name == "c"
    assert claim.status.allocation is not None
    assert [result.device for result in claim.status.allocation.devices.results] == ["x"]
    assert [user.uid for user in claim.status.reserved_for] == ["pod-uid"]
    assert why_unreadable(read(claim.status.devices[0].data))


@hostile
def test_a_claim_of_parley_keeps_its_status_whatever_its_parameters_are(parameters: bytes) -> None:
    claim = CLAIMS.decode(
        b'{"metadata": {"name": "c", "managedFields": [{"fieldsV1": '
        + nested(2_000)
        + b'}]}, "spec": {"resourceClassName": "gpu", "parameters": '
        + parameters
        + b'}, "status": {"driverName": "d.dev", "allocation": {"handles": [{"driverName": "d.dev", '
        b'"devices": [{"pool": "p", "device": "x"}]}]}}}'
    )

    assert why_unreadable(claim.spec.parameters)
    assert claim.status.allocation is not None
    assert claim.status.allocation.handles[0].devices[0].device == "x"


@hostile
def test_a_plain_dictionary_has_all_else(parameters: bytes) -> None:
    claim = CLAIMS.untyped().decode(b'{"metadata": {"name": "c"}, "spec": {"parameters": ' + parameters + b"}}")

    assert claim["metadata"] == {"name": "c"}


@pytest.mark.parametrize(
    "parameters",
    [b'{"a": 1, "a": 2}', b'{"a": "\\u0000"}', b'{"a": "' + b"x" * 9_000 + b'"}', b'{"a": null}', nested(64)],
    ids=["twice", "NUL", "long", "null", "64 deep"],
)
def test_what_is_only_odd_is_read(parameters: bytes) -> None:
    shown = read(msgspec.Raw(parameters))

    assert shown == json.loads(parameters)
    assert why_unreadable(shown) == ""


def test_how_deep_parameters_may_nest() -> None:
    assert why_unreadable(orjson.loads(nested(MAX_DEPTH))) == ""
    assert why_unreadable(orjson.loads(nested(MAX_DEPTH + 1))) == DEEP
    # Parley wraps what a user asks for in one object more.
    assert read(msgspec.Raw(nested(MAX_DEPTH + 1))) == orjson.loads(nested(MAX_DEPTH + 1))
    assert read(msgspec.Raw(nested(MAX_DEPTH + 2))) == {"parley.dev/unreadable": DEEP}


def test_how_large_they_may_be() -> None:
    large = b'{"a": "' + b"x" * MAX_BYTES + b'"}'

    assert why_unreadable(read(msgspec.Raw(large))) == (
        f"they have {len(large)} bytes, more than 65536: make them shorter"
    )


words = st.text(alphabet='"\\[]{},: a\u00e9\u2028\x00', max_size=6)
values = st.recursive(
    st.none() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner) | st.dictionaries(words | st.sampled_from(["parameters", "data"]), inner),
    max_leaves=20,
)


@given(values, st.sampled_from([None, 0, 2]))
def test_what_can_be_read_stays_as_it_is(value: Any, indent: int | None) -> None:
    text = json.dumps({"spec": value, "parameters": value}, indent=indent).encode()

    assert json.loads(without_unreadable(text)) == {"spec": value, "parameters": value}


@given(st.binary())
def test_nothing_else_than_undecodable_is_raised(text: bytes) -> None:
    for resource in (BUILTIN_CLAIMS, CLAIMS, CLASSES, CLAIMS.untyped()):
        try:
            resource.decode(text)
        except Undecodable:
            continue


def test_a_transform_that_fails_makes_its_object_undecodable() -> None:
    def fail(_: Any) -> Any:
        raise OverflowError("too large")

    with pytest.raises(Undecodable, match="OverflowError: too large"):
        BUILTIN_CLAIMS.read_through(fail).decode(builtin(b"{}"))


def test_words_of_decoders_are_cut() -> None:
    with pytest.raises(Undecodable) as told:
        CLASSES.decode(b'{"driverName": "' + b"X" * 100_000 + b'"}')

    assert len(str(told.value)) <= 500
