"""The most expensive functions of a profiled controller."""

import pstats
from pathlib import Path
from typing import TextIO

_ENTRIES = 40


def show(profile: Path, stream: TextIO) -> None:
    """Print the functions with the most time of their own, then those with the most in all."""
    statistics = pstats.Stats(str(profile), stream=stream)
    statistics.strip_dirs()
    for order in ("tottime", "cumulative"):
        statistics.sort_stats(order).print_stats(_ENTRIES)
