"""Kubernetes quantities ("512Mi", "250m", "2") as numbers, with the rules and limits of Kubernetes.

What is written is a tenant's: no power of ten and no number of more digits than can count is computed, and what is
long is not remembered.
Source: k8s.io/apimachinery/pkg/api/resource/quantity.go and suffix.go (1.37). Where a number has no digit at all
("Gi") the API server reads and writes 0; here that is refused.
"""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

MOST: Final = 2**63 - 1
"""The largest amount; larger ones count as this."""

_NANOS: Final = 9
"""The decimal places of a quantity; finer ones are rounded away from zero."""

_MOST_DIGITS: Final = len(str(MOST))
_FORM = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])0*+(?P<whole>[0-9]*+)(?:\.(?P<fraction>[0-9]*+))?"
    r"(?P<suffix>[eE][+-]?[0-9]++|[numkMGTPE]|[KMGTPE]i)?"
)
_EXPONENT = {"": 0, "n": -9, "u": -6, "m": -3, **{letter: 3 * n for n, letter in enumerate("kMGTPE", 1)}}
_FACTOR = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
_PLAIN = re.compile(r"([0-9]{1,15})([mkMGTPE]|[KMGTPE]i)?", re.ASCII)
"""The form of nearly all quantities that the API server writes: a fast path, as there may be very many."""

_IN_THOUSANDTHS: Final[dict[str | None, int]] = {
    None: 1000,
    "m": 1,
    **{letter: 1000 ** (n + 1) for n, letter in enumerate("kMGTPE", 1)},
    **{suffix: factor * 1000 for suffix, factor in _FACTOR.items()},
}
_LONGEST_KEPT = 64
_SHOWN = 40


def parse(text: str | int | float) -> Fraction:
    """The number that a quantity stands for: exact to nine decimal places, -(2^63-1) to 2^63-1.

    Raises ValueError, with the value and the expected form, if it is not a quantity.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return Fraction(max(-MOST, min(MOST, text)))
    written = str(text)
    return _remembered(written) if len(written) <= _LONGEST_KEPT else _number(written)


def thousandths(text: str | int | float) -> int:
    """The number in thousandths, rounded up. Raises ValueError as `parse` does."""
    short = isinstance(text, str) and len(text) <= _LONGEST_KEPT
    return _thousandths(text) if short else ceil(parse(text) * 1000)


@lru_cache(maxsize=4096)
def _thousandths(text: str) -> int:
    plain = _PLAIN.fullmatch(text)
    if plain is None:
        return ceil(parse(text) * 1000)
    return min(int(plain[1]) * _IN_THOUSANDTHS[plain[2]], MOST * 1000)


def _number(text: str) -> Fraction:
    match = _FORM.fullmatch(text) if text else None
    if match is None:
        raise _no_quantity(text)
    suffix = match["suffix"] or ""
    exponent = _exponent(suffix)
    if exponent is None:
        raise _no_quantity(text)
    size = _size(match["whole"], match["fraction"] or "", exponent, _FACTOR.get(suffix, 1))
    return -size if match["sign"] == "-" else size


_remembered = lru_cache(maxsize=4096)(_number)


def _exponent(suffix: str) -> int | None:
    """The power of ten. One that 64 bits cannot hold is refused, of others the lower 32 bits count."""
    if suffix in _EXPONENT or suffix in _FACTOR:
        return _EXPONENT.get(suffix, 0)
    sign, digits = (-1 if suffix[1] == "-" else 1), suffix[1:].lstrip("+-").lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return None
    number = sign * int(digits or "0")
    if not -(2**63) <= number < 2**63:
        return None
    return (number + 2**31) % 2**32 - 2**31


def _size(whole: str, fraction: str, exponent: int, factor: int) -> Fraction:
    """The digits times ten to the exponent, and the factor of a binary suffix."""
    significant = (whole + fraction).lstrip("0")
    before_point = len(significant) - len(fraction) + exponent  # of digits; negative if zeros follow the point
    if not significant:
        return Fraction(0)
    if before_point > _MOST_DIGITS:
        return Fraction(MOST)
    places = _NANOS if factor == 1 else _NANOS + _MOST_DIGITS
    kept = significant[: max(0, before_point + places)]
    rounded_up = bool(significant[len(kept) :].strip("0"))
    scale = max(-places, before_point - len(kept))
    nanos = ceil((int(kept or "0") + rounded_up) * factor * Fraction(10) ** (scale + _NANOS))
    return min(Fraction(nanos, 10**_NANOS), Fraction(MOST))


def _no_quantity(text: str) -> ValueError:
    shown = repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}... ({len(text)} characters)"
    return ValueError(f"{shown} is not a quantity; write a number such as 2, 250m or 16Gi")
