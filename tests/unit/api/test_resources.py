"""How objects are decoded: what an API server writes and the types do not say."""

import pytest

from parley.api.opaque import read
from parley.api.resources import BUILTIN_CLAIMS, Undecodable


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
