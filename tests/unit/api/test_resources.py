"""How objects are decoded: what an API server writes and the types do not say."""

import orjson
import pytest

from parley.api.opaque import read, why_unreadable
from parley.api.owners import MAX_OWNERS
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, Undecodable


def test_an_empty_list_that_came_as_null() -> None:
    claim = BUILTIN_CLAIMS.decode(
        b"""{"metadata": {"name": "c"}, "spec": {"devices": {"requests": null}}, "status": {"devices": [
             {"driver": "d", "conditions": null, "data": {"kept": null}}]}}"""
    )
    assert claim.metadata.name == "c"
    assert claim.spec.devices.requests == []
    (device,) = claim.status.devices
    assert (device.conditions, read(device.data)) == ([], {"kept": None})


def test_what_is_wrong_otherwise_is_told() -> None:
    with pytest.raises(Undecodable, match=r"Expected `array`, got `int` - at `\$.spec.devices.requests`"):
        BUILTIN_CLAIMS.decode(b'{"spec": {"devices": {"requests": 7}}}')


def test_of_a_claim_that_is_large_nobody_makes_objects_of_the_parameters() -> None:
    many: dict[str, object] = {"a": [[[[]]]] * 50_000}
    body = {"metadata": {"name": "c"}, "spec": {"resourceClassName": "gpu", "parameters": many}}

    claim = CLAIMS.decode(orjson.dumps(body))

    assert why_unreadable(claim.spec.parameters).endswith("more than 65536: make them shorter")
    assert (claim.metadata.name, claim.spec.resource_class_name) == ("c", "gpu")


def test_a_large_claim_with_parameters_of_ordinary_size_is_read_as_it_is() -> None:
    annotations = {f"example.com/{number}": "x" * 1000 for number in range(200)}
    spec = {"resourceClassName": "gpu", "parameters": {"count": 2}}

    claim = CLAIMS.decode(orjson.dumps({"metadata": {"name": "c", "annotations": annotations}, "spec": spec}))

    assert claim.spec.parameters == {"count": 2}
    assert claim.metadata.annotations == annotations


def test_of_a_claim_that_is_large_few_owners_are_read_and_everything_else() -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": f"uid-{n}"} for n in range(3_000)]
    meta = {"name": "c", "ownerReferences": [*owners, {**owners[0], "uid": "last", "controller": True}]}
    parameters = {"ownerReferences": [{"uid": str(n)} for n in range(20)]}
    body = {
        "metadata": {**meta, "labels": {"a": "b"}},
        "spec": {"resourceClassName": "x", "parameters": parameters},
    }

    claim = CLAIMS.decode(orjson.dumps(body))

    found = claim.metadata.owner_references
    assert [owner.uid for owner in found] == ["last", *(f"uid-{n}" for n in range(MAX_OWNERS - 1))]
    assert [owner.uid for owner in found if owner.controller] == ["last"]
    assert (claim.metadata.labels, claim.spec.parameters) == ({"a": "b"}, parameters)


def test_what_is_wrong_with_a_large_claim_is_told() -> None:
    padding = {"labels": {f"a{n}": "b" * 60 for n in range(3_000)}}

    with pytest.raises(Undecodable, match=r"metadata\.ownerReferences"):
        CLAIMS.decode(orjson.dumps({"metadata": {**padding, "ownerReferences": 7}, "spec": {}}))
    with pytest.raises(Undecodable, match="resourceClassName"):
        CLAIMS.decode(orjson.dumps({"metadata": padding, "spec": {}}))


def test_a_number_of_more_than_64_bits_is_the_float_that_the_api_server_stores() -> None:
    """Go writes those below 1e21 in digits."""
    digits = b"100000000000000000000"
    body = b'{"metadata": {"name": "c"}, "spec": {"resourceClassName": "x", "parameters": {"a": [{"b":%s},-%s]}}}'

    parameters = CLAIMS.decode(body % (digits, digits)).spec.parameters

    assert parameters == {"a": [{"b": 1e20}, -1e20]}
    assert orjson.loads(orjson.dumps(parameters)) == parameters
    assert CLAIMS.decode(body % (b"18446744073709551615", b"9223372036854775808")).spec.parameters == {
        "a": [{"b": 2**64 - 1}, -(2**63)]
    }
