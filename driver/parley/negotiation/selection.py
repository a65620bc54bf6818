"""Which of the viable nodes is selected."""

from collections.abc import Callable, Mapping, Sequence, Set


def _equally_full(_: str) -> int:
    return 0


def select(
    viable: Sequence[str],
    scores: Mapping[str, float],
    avoid: Set[str] = frozenset(),
    pods: Callable[[str], int] = _equally_full,
) -> str | None:
    """The best viable node: not one to avoid while there are others, then the highest score, then the fewest pods,
    so that many pods at once are no herd, then the order given.

    `avoid` are nodes that this pod just left, or that the scheduler refused for it; `pods` counts those on a node.
    """
    if not viable:
        return None
    order = {node: position for position, node in enumerate(viable)}
    return min(viable, key=lambda node: (node in avoid, -scores.get(node, 0.0), pods(node), order[node]))
