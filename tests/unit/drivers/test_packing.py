"""Devices for several claims at once: never more than there is, and found whenever there is a way."""

from collections import Counter
from fractions import Fraction
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from parley.drivers.device.packing import Demand, Kind, pack

Gi = 1024**3
kinds = st.builds(
    Kind,
    memory=st.sampled_from([Fraction(8 * Gi), Fraction(16 * Gi)]),
    slices=st.sampled_from([1, 2]),
    model=st.sampled_from(["x", "y"]),
)
demands = st.builds(
    Demand,
    count=st.integers(1, 2),
    model=st.sampled_from([None, "x"]),
    memory=st.sampled_from([Fraction(0), Fraction(8 * Gi)]),
    shared=st.booleans(),
)
devices = st.lists(kinds, max_size=4).map(lambda found: {f"d{i}": kind for i, kind in enumerate(found)})


def stock_of(owned: dict[str, Kind]) -> dict[tuple[Kind, int], tuple[str, ...]]:
    groups: dict[tuple[Kind, int], list[str]] = {}
    for name, kind in owned.items():
        groups.setdefault((kind, kind.slices), []).append(name)
    return {group: tuple(names) for group, names in groups.items()}


def valid(wanted: tuple[Demand, ...], owned: dict[str, Kind], given_: tuple[tuple[str, ...], ...]) -> bool:
    whole: Counter[str] = Counter()
    shares: Counter[str] = Counter()
    for demand, names in zip(wanted, given_, strict=True):
        if len(set(names)) != demand.count or not all(demand.suits(owned[name]) for name in names):
            return False
        (shares if demand.shared else whole).update(names)
    return all(
        (whole[n] <= 1 and not (whole[n] and shares[n]) and shares[n] <= kind.slices) for n, kind in owned.items()
    )


@given(st.lists(demands, min_size=1, max_size=3).map(tuple), devices)
@settings(max_examples=300)
def test_a_packing_is_valid_and_found_exactly_when_one_exists(
    wanted: tuple[Demand, ...], owned: dict[str, Kind]
) -> None:
    found = pack(wanted, stock_of(owned))
    ways = product(*(combinations(sorted(owned), demand.count) for demand in wanted))
    assert (found is not None) == any(valid(wanted, owned, way) for way in ways)
    if found is not None:
        assert valid(wanted, owned, found)


def test_the_smallest_device_that_suffices_is_taken() -> None:
    owned = {"big": Kind(Fraction(80 * Gi), 1, "x"), "small": Kind(Fraction(16 * Gi), 1, "x")}
    assert pack((Demand(1, "x", Fraction(8 * Gi), False),), stock_of(owned)) == (("small",),)


def test_a_partly_used_device_serves_shares_before_an_untouched_one() -> None:
    kind = Kind(Fraction(16 * Gi), 2, "x")
    assert pack((Demand(1, None, Fraction(0), True),), {(kind, 2): ("whole",), (kind, 1): ("used",)}) == (
        ("used",),
    )


def test_many_alike_devices_do_not_make_the_search_long() -> None:
    owned = {f"d{i:02}": Kind(Fraction(Gi), 1, "x") for i in range(32)}
    assert pack((Demand(16, "x", Fraction(0), False),) * 3, stock_of(owned)) is None
    assert pack((Demand(16, "x", Fraction(0), False),) * 2, stock_of(owned)) is not None
