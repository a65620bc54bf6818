"""Which of the viable nodes a class prefers, by what would be left there: its field `prefer`. Pure.

`Pack` keeps the largest gaps whole: a claim goes where the least is left. `Spread` is the reverse. This is the one
place that makes a preference of it; the drivers tell what is left, or the pods on a node stand for it.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

Prefer = Literal["Pack", "Spread"]


def of_classes(stated: Iterable[Prefer | None], *, tells_room: bool) -> Prefer:
    """What holds for the claims that one driver judges together, by what their classes state: Pack if one is to be
    packed. None is not stated: Pack where the driver reports what is left on a node."""
    default: Prefer = "Pack" if tells_room else "Spread"
    return "Pack" if any((prefer or default) == "Pack" for prefer in stated) else "Spread"


def by_room(prefer: Prefer, left: Mapping[str, float]) -> dict[str, float]:
    """Scores (0 to 1) of nodes with so much left: 1 for the best, 1/2 for the next, 1/3, ...; equal for equal
    ones.

    By rank, so that the best stand out also where scores are rounded to a few steps, as in an extender's answer.
    """
    levels = sorted(set(left.values()), reverse=prefer == "Spread")
    scores = {level: 1 / (1 + rank) for rank, level in enumerate(levels)}
    return {node: scores[level] for node, level in left.items()}
