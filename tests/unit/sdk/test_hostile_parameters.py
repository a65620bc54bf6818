"""Whatever a tenant writes for parameters, up to the 10 KiB that the API lets through, is judged in no time."""

from typing import Any

import pytest
from tests.support.effort import cpu_seconds

from parley.drivers.device.driver import DeviceParameters
from parley.drivers.tokens import Pool, Wanted
from parley.sdk import Parameters
from parley.sdk.checks import BadParameters, parse_parameters


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: dict[str, dict[str, Any]] = {
    "digits": {"memory": "9" * 10_000, "count": "9" * 10_000, "pool": "9" * 10_000},
    "exponent": {"memory": "1e1000000000", "count": 1e308, "pool": 10**4000},
    "negative exponent": {"memory": "-1e-999999999999"},
    "zeros": {"memory": "0" * 10_000 + "x", "count": "0" * 10_000, "pool": "0" * 10_000},
    "depth": {name: nested(900) for name in ("memory", "count", "model", "shared", "pool", "scope", "other")},
    "names": {f"p{number}": number for number in range(1_500)},
    "a long name": {"x" * 10_000: "y"},
    "numbers": {"memory": 10**4000, "count": -(10**4000), "model": 10**4000, "pool": 1e400, "scope": 1e400},
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("schema", [DeviceParameters, Wanted, Pool])
def test_they_are_judged_in_no_time_and_told_in_few_words(schema: type[Parameters], raw: dict[str, Any]) -> None:
    told = ""

    def judge() -> None:
        nonlocal told
        try:
            parse_parameters(schema, raw, "claim team/gpu")
        except BadParameters as refused:
            told = str(refused)

    assert cpu_seconds(judge) < 0.5  # seconds to minutes, where one of them is computed
    assert len(told) < 3_000
