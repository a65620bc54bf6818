"""Quantities as Kubernetes reads them, and none that takes longer than it should."""

from contextlib import suppress
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.effort import cpu_seconds

from parley.api.quantity import MOST, parse, thousandths

# What resource.ParseQuantity of k8s.io/apimachinery 0.37.0 makes of each.
READ = [
    ("0", 0),
    ("2", 2),
    ("+5", 5),
    ("-3", -3),
    ("00012", 12),
    ("1.", 1),
    (".5", Fraction(1, 2)),
    ("250m", Fraction(1, 4)),
    ("3n", Fraction(3, 10**9)),
    ("1.5Gi", 3 * 2**29),
    ("0.123456789123456789Ki", Fraction(126419752063, 10**9)),
    ("1e3", 1000),
    ("12E-3", Fraction(12, 1000)),
    ("1e00000000000000000000000000003", 1000),
    ("5E", 5 * 10**18),
    ("1e4294967299", 1000),
    ("1e-4294967290", 10**6),
]


@pytest.mark.parametrize(("text", "number"), READ)
def test_a_quantity_is_the_number_that_kubernetes_reads(text: str, number: Fraction) -> None:
    assert parse(text) == number


@pytest.mark.parametrize("text", ["0.1n", "0.0000000001", "1e-40", "1e-1000000000", "0." + "0" * 100_000 + "1"])
def test_what_is_finer_than_a_billionth_is_rounded_up(text: str) -> None:
    assert parse(text) == Fraction(1, 10**9)
    assert parse(f"-{text}") == Fraction(-1, 10**9)


@pytest.mark.parametrize(
    "text",
    [
        "8Ei",
        "100Ei",
        "10E",
        "1e19",
        "1e1000000000",
        "9" * 100_000,
        "9" * 100_000 + "." + "9" * 1000 + "Gi",
        10**30,
    ],
)
def test_what_is_too_large_counts_as_the_largest_amount(text: str | int) -> None:
    assert parse(text) == MOST
    assert parse(f"-{text}") == -MOST


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lots",
        "40 GB",
        "1..2",
        "1ki",
        "1mi",
        "e3",
        "Gi",
        ".",
        "+",
        "--1",
        "1e",
        "1e3.5",
        "1Ei3",
        "٣",
        "nan",
        "inf",
    ],
)
def test_what_is_no_quantity_is_told_so(text: str) -> None:
    with pytest.raises(ValueError) as told:  # noqa: PT011
        parse(text)

    assert str(told.value) == f"{text!r} is not a quantity; write a number such as 2, 250m or 16Gi"


def test_a_long_text_is_told_by_its_beginning() -> None:
    with pytest.raises(ValueError) as told:  # noqa: PT011
        parse("x" * 1000)

    assert str(told.value) == (
        f"'{'x' * 40}'... (1000 characters) is not a quantity; write a number such as 2, 250m or 16Gi"
    )


def test_an_exponent_of_more_than_64_bits_is_no_quantity() -> None:
    assert parse(f"0e{2**63 - 1}") == 0
    with pytest.raises(ValueError, match="is not a quantity"):
        parse(f"0e{2**63}")
    with pytest.raises(ValueError, match="is not a quantity"):
        parse("0e" + "9" * 100_000)


SUFFIXES = ["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


@given(st.integers(-(10**20), 10**20), st.sampled_from(SUFFIXES))
@example(10**15, "E")
def test_thousandths_are_the_same_number_rounded_up(number: int, suffix: str) -> None:
    assert thousandths(f"{number}{suffix}") == ceil(parse(f"{number}{suffix}") * 1000)
    assert thousandths(number) == ceil(parse(number) * 1000)


def test_what_is_no_quantity_is_no_number_of_thousandths() -> None:
    for text in ("", "1ki", "٣", "1\n", True):
        with pytest.raises(ValueError, match="is not a quantity"):
            thousandths(text)


@given(st.integers(-MOST, MOST))
def test_whole_numbers_are_exact(number: int) -> None:
    assert parse(str(number)) == parse(number) == number


long = st.integers(0, 1_500_000)
short = st.text("0123456789", max_size=30)
exponents = st.one_of(st.sampled_from(["", "m", "n", "Ki", "Ei", "E", "e", "x"]), st.integers(-(2**70), 2**70))


@settings(max_examples=100, deadline=None)
@given(short, long, st.sampled_from("019"), exponents)
def test_none_takes_long(beginning: str, more: int, digit: str, end: str | int) -> None:
    many, suffix = digit * more, end if isinstance(end, str) else f"e{end}"
    for text in (f"{beginning}{many}{suffix}", f"-.{many}{beginning}{suffix}", f"{beginning}E-{many}"):
        assert cpu_seconds(lambda: _tried(text)) < 0.05  # noqa: B023 - it is called at once


def _tried(text: str) -> None:
    with suppress(ValueError):  # as good, if it is fast
        parse(text)
