"""Devices for several claims at once: never more than there is, found whenever there is a way, in few steps."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.drivers.varied import Gi, many_demands, many_kinds

from parley.drivers.device.findings import STEPS_PER_CALL, STEPS_PER_NODE
from parley.drivers.device.flow import OutOfSteps, Steps
from parley.drivers.device.packing import ClaimDemand, DeviceKind, Packing, Stock
from parley.drivers.device.packing import pack as pack_within

Owned = Mapping[str, tuple[DeviceKind, int]]
"""Devices by name, with the shares of each that are free."""

kinds = st.builds(
    DeviceKind,
    memory=st.sampled_from([Fraction(8 * Gi), Fraction(16 * Gi), Fraction(24 * Gi)]),
    slices=st.integers(1, 3),
    model=st.sampled_from(["x", "y"]),
)
demands = st.builds(
    ClaimDemand,
    count=st.integers(1, 3),
    model=st.sampled_from([None, "x", "y"]),
    memory=st.sampled_from([Fraction(0), Fraction(8 * Gi), Fraction(16 * Gi)]),
    shared=st.booleans(),
)
wanted_together = st.lists(demands, min_size=1, max_size=5).map(tuple)
devices = st.lists(
    kinds.flatmap(lambda kind: st.tuples(st.just(kind), st.integers(1, kind.slices))), max_size=6
).map(lambda found: {f"d{i}": device for i, device in enumerate(found)})


def stock_of(owned: Owned) -> Stock:
    groups: dict[tuple[DeviceKind, int], list[str]] = {}
    for name, device in owned.items():
        groups.setdefault(device, []).append(name)
    return {group: tuple(names) for group, names in groups.items()}


def untouched(*kinds: DeviceKind) -> Owned:
    return {f"d{number:02}": (kind, kind.slices) for number, kind in enumerate(kinds)}


def pack(wanted: tuple[ClaimDemand, ...], stock: Stock) -> Packing | None:
    return pack_within(wanted, stock, Steps(10**9))


def valid(wanted: tuple[ClaimDemand, ...], owned: Owned, given_: Packing) -> bool:
    whole: Counter[str] = Counter()
    shares: Counter[str] = Counter()
    for demand, names in zip(wanted, given_, strict=True):
        if len(set(names)) != demand.count or not all(demand.suits(owned[name][0]) for name in names):
            return False
        (shares if demand.shared else whole).update(names)
    return all(
        whole[name] * kind.slices + shares[name] <= (kind.slices if whole[name] else free)
        and (not whole[name] or free == kind.slices)
        for name, (kind, free) in owned.items()
    )


def exists(wanted: tuple[ClaimDemand, ...], owned: Owned) -> bool:
    """Whether there is any way at all, by trying all."""
    if not wanted:
        return True
    demand, later = wanted[0], wanted[1:]
    usable = [
        name
        for name, (kind, free) in owned.items()
        if demand.suits(kind) and free > 0 and (demand.shared or free == kind.slices)
    ]
    for names in combinations(usable, demand.count):
        left = dict(owned)
        for name in names:
            kind, free = owned[name]
            left[name] = (kind, free - 1 if demand.shared else 0)
        if exists(later, left):
            return True
    return False


@given(wanted_together, devices)
@settings(max_examples=600, deadline=None)
def test_a_packing_is_valid_and_found_exactly_when_one_exists(
    wanted: tuple[ClaimDemand, ...], owned: Owned
) -> None:
    found = pack(wanted, stock_of(owned))
    assert (found is not None) == exists(wanted, owned)
    if found is not None:
        assert valid(wanted, owned, found)


def test_what_goes_whole_leaves_the_devices_that_shares_need() -> None:
    owned = untouched(DeviceKind(8 * Gi, 1, "x"), DeviceKind(16 * Gi, 2, "x"), DeviceKind(24 * Gi, 4, "x"))
    wanted = (ClaimDemand(1, None, 8 * Gi, False), *[ClaimDemand(1, "x", 6 * Gi, True)] * 6)
    found = pack(wanted, stock_of(owned))
    assert found is not None
    assert valid(wanted, owned, found)
    wanted = (ClaimDemand(1, None, 16 * Gi, False), *[ClaimDemand(1, "x", 0, True)] * 4)
    found = pack(wanted, stock_of(owned))
    assert found is not None
    assert found[0] == ("d01",)
    assert pack((*wanted, *[ClaimDemand(1, "x", 0, True)] * 2), stock_of(owned)) is None


def test_the_smallest_device_that_suffices_is_taken() -> None:
    owned = {"big": (DeviceKind(80 * Gi, 1, "x"), 1), "small": (DeviceKind(16 * Gi, 1, "x"), 1)}
    assert pack((ClaimDemand(1, "x", 8 * Gi, False),), stock_of(owned)) == (("small",),)


def test_a_partly_used_device_serves_shares_before_an_untouched_one() -> None:
    kind = DeviceKind(16 * Gi, 2, "x")
    assert pack((ClaimDemand(1, None, 0, True),), {(kind, 2): ("whole",), (kind, 1): ("used",)}) == (("used",),)


def test_shares_of_several_claims_are_of_as_few_devices_as_will_do() -> None:
    owned = untouched(*[DeviceKind(16 * Gi, 4, "x")] * 3)
    assert pack((ClaimDemand(1, None, 0, True),) * 4, stock_of(owned)) == (("d00",),) * 4
    assert pack((ClaimDemand(2, None, 0, True),) * 3, stock_of(owned)) == (("d00", "d01"),) * 3


ALIKE = DeviceKind(Gi, 7, "x")
SIZES = [DeviceKind((1 + number // 4) * 8 * Gi, 1 + number % 4, "xy"[number % 2]) for number in range(32)]
HARD = {
    "28 shared claims of 2 and one of 8": (
        (*[ClaimDemand(2, None, 0, True)] * 28, ClaimDemand(8, None, 0, True)),
        untouched(*[ALIKE] * 8),
    ),
    "11 claims of devices of 8 sizes": (
        tuple(ClaimDemand(3, None, size * 8 * Gi, False) for size in range(11)),
        untouched(*[DeviceKind((1 + number % 8) * 8 * Gi, 1, "x") for number in range(32)]),
    ),
    "one device too few, of many models": (
        tuple(ClaimDemand(1, model, memory * Gi, False) for model in (None, "x", "y") for memory in range(11)),
        untouched(*SIZES),
    ),
    "alike devices, whole": ((ClaimDemand(16, "x", 0, False),) * 3, untouched(*[DeviceKind(Gi, 1, "x")] * 32)),
}


@pytest.mark.parametrize("case", HARD.values(), ids=HARD.keys())
def test_what_does_not_fit_is_found_out_in_few_steps(case: tuple[tuple[ClaimDemand, ...], Owned]) -> None:
    wanted, owned = case
    assert pack_within(wanted, stock_of(owned), Steps(STEPS_PER_NODE)) is None


@given(
    st.lists(many_demands, min_size=1, max_size=128).map(tuple),
    st.lists(many_kinds, max_size=128).map(lambda found: untouched(*found)),
)
@settings(max_examples=60, deadline=None)
def test_a_search_has_its_steps_and_what_it_finds_is_valid(wanted: tuple[ClaimDemand, ...], owned: Owned) -> None:
    steps = Steps(STEPS_PER_NODE)
    try:
        found = pack_within(wanted, stock_of(owned), steps)
    except OutOfSteps:
        return
    assert 0 <= steps.left <= STEPS_PER_NODE <= STEPS_PER_CALL
    assert found is None or valid(wanted, owned, found)


@given(wanted_together, devices, st.integers(0, 200))
@settings(max_examples=300, deadline=None)
def test_what_is_found_in_few_steps_is_what_is_found_in_many(
    wanted: tuple[ClaimDemand, ...], owned: Owned, few: int
) -> None:
    stock = stock_of(owned)
    try:
        found = pack_within(wanted, stock, Steps(few))
    except OutOfSteps:
        return
    assert found == pack(wanted, stock)
