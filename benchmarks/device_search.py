"""How long the device driver keeps the event loop busy with one question, at its worst. By CPU time.

Each question is asked of a driver that has not heard it before, about nodes that all differ a little; it knows
from an earlier question what they have free.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from parley.api.builtin import (
    DeviceAttribute,
    DeviceCapacity,
    ObjectMeta,
    Pool,
    ResourceSlice,
    ResourceSliceSpec,
    SliceDevice,
)
from parley.drivers.device import DeviceDriver
from parley.sdk.checks import MAX_CLAIMS
from parley.sdk.testing import request

NAME = "device-search"
_NODES = 100
_ROUND = 32
_REPEATS = 5

Claims = Sequence[Mapping[str, Any]]

_SHARE = {"shared": True}
_MIXED = [{"memory": f"{i * 7 % 8}Gi"} for i in range(8)] + [
    {"shared": True, "memory": f"{i % 3 * 512}Mi", "model": "xyz"[i % 3]} for i in range(32)
]
_ANYTHING = [
    {"count": 1 + i % 3, "memory": f"{i}Gi", "shared": i % 2 == 0, "model": "xyz"[i % 3]}
    for i in range(MAX_CLAIMS)
]

CASES: Mapping[str, tuple[Claims, int, bool]] = {
    "one-device": ([{}], 8, False),
    "shares": ([{"count": 2, **_SHARE}] * 28 + [{"count": 8, **_SHARE}], 8, False),
    "sizes": ([{"count": 3, "memory": f"{8 * i}Gi"} for i in range(11)], 32, True),
    "whole-and-shared": (_MIXED, 16, True),
    "as-many-as-possible": (_ANYTHING, 128, True),
}
"""Claims of a pod, devices of a node, and whether these differ."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the output: milliseconds of CPU for the longest of the first questions about so many nodes."""

    workload: str
    nodes: int
    asked: int
    claims: int
    devices: int
    longest_ms: float


def driver_with(nodes: int, devices: int, *, different: bool) -> DeviceDriver:
    """Each node has a device more of another size, so that none is like another."""
    driver = DeviceDriver()
    for number in range(nodes):
        found = [_device(i, i if different else 0, 7 if not different else 1 + i % 5) for i in range(devices)]
        found.append(_device(devices, 1000 + number, 1))
        name = f"node-{number}"
        spec = ResourceSliceSpec(DeviceDriver.name, name, Pool(name=name, generation=1), found)
        driver.observe(None, ResourceSlice(metadata=ObjectMeta(name=name), spec=spec))
    return driver


def _device(number: int, size: int, slices: int) -> SliceDevice:
    return SliceDevice(
        name=f"device-{number}",
        attributes={"model": DeviceAttribute(string="xyz"[size % 3])},
        capacity={
            "memory": DeviceCapacity(value=f"{1 + size}Gi"),
            "slices": DeviceCapacity(value=slices),
        },
    )


def measure(name: str, nodes: int = _NODES, repeats: int = _REPEATS) -> Result:
    """Ask about the first nodes of so many, each time a driver that knows nothing yet."""
    claims, devices, different = CASES[name]
    asked, longest = [f"node-{number}" for number in range(min(nodes, _ROUND))], 0.0
    for _ in range(repeats):
        driver = driver_with(nodes, devices, different=different)
        wanted = request(driver, "pod", *claims)
        before = request(driver, "before", {})
        driver.viable(before, [f"node-{number}" for number in range(nodes)])
        driver.room_left(before, ())  # whatever came with the nodes is put in order
        started = time.process_time()
        driver.viable(wanted, asked)
        longest = max(longest, time.process_time() - started)
    return Result(
        workload=f"{NAME}-{name}",
        nodes=nodes,
        asked=len(asked),
        claims=len(claims),
        devices=devices + 1,
        longest_ms=round(1000 * longest, 2),
    )


def results() -> Iterator[Result]:
    """Of each case."""
    return map(measure, CASES)
