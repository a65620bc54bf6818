"""Kubernetes quantities ("512Mi", "250m", "2") as exact numbers.

Source: k8s.io/apimachinery/pkg/api/resource/quantity.go, section "Serialization format".
"""

import re
from fractions import Fraction
from functools import lru_cache

_FORM = re.compile(r"^([+-]?[0-9.]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$")
_SUFFIX = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}


@lru_cache(maxsize=4096)
def parse(text: str | int | float) -> Fraction:
    """The number that a quantity stands for, exactly.

    Raises ValueError, with the value and the expected form, if it is not a quantity.
    """
    match = _FORM.match(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write a number such as 2, 250m or 16Gi")
    number, suffix = match.group(1), match.group(2) or ""
    try:
        if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix not in _SUFFIX:
            return Fraction(f"{number}{suffix}")
        return Fraction(number) * _SUFFIX[suffix]
    except ValueError:
        raise ValueError(f"{text!r} is not a quantity; {number!r} is not a number") from None
