"""The field `prefer` of a class: which of the viable nodes come first, by how much room is left there. Pure.

`Pack` keeps the largest gaps whole: a claim goes where the least is left. `Spread` is the reverse. Only this file
turns room into scores; the drivers report the room, or the number of pods on a node stands for it.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

Prefer = Literal["Pack", "Spread"]


def preference_of_classes(prefers: Iterable[Prefer | None], *, reports_room: bool) -> Prefer:
    """The preference for claims that one driver judges together: Pack if that is the preference of one of their
    classes. A class with None has the default: Pack where the driver reports the room left on a node."""
    default: Prefer = "Pack" if reports_room else "Spread"
    return "Pack" if any((prefer or default) == "Pack" for prefer in prefers) else "Spread"


def scores_by_room(prefer: Prefer, left: Mapping[str, float]) -> dict[str, float]:
    """Scores (0 to 1) of nodes by the room `left` on them: 1 for the best, 1/2 for the next, 1/3, ...; nodes with
    equal room have equal scores.

    Scores go by rank, so that the best stand out even when rounded to a few steps, as in an extender's answer.
    """
    levels = sorted(set(left.values()), reverse=prefer == "Spread")
    scores = {level: 1 / (1 + rank) for rank, level in enumerate(levels)}
    return {node: scores[level] for node, level in left.items()}
