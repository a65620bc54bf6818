"""Which of the viable nodes is selected."""

from collections.abc import Mapping, Sequence, Set


def select(viable: Sequence[str], scores: Mapping[str, float], avoid: Set[str] = frozenset()) -> str | None:
    """The best viable node: not one to avoid while there are others, then the highest score, then the order given.

    `avoid` are nodes that this pod just left, or that the scheduler refused for it.
    """
    if not viable:
        return None
    order = {node: position for position, node in enumerate(viable)}
    return min(viable, key=lambda node: (node in avoid, -scores.get(node, 0.0), order[node]))
