"""In which order nodes are asked about, and which of the viable ones is selected. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from zlib import crc32


def spread(names: Sequence[str], uid: str) -> Iterator[str]:
    """All names, beginning at a place of the object's own, so that not everybody asks about the same first."""
    start = crc32(uid.encode()) % len(names) if names else 0
    for position in range(len(names)):
        yield names[(start + position) % len(names)]


def _equally_full(_: str) -> int:
    return 0


def ranked(
    viable: Sequence[str],
    scores: Mapping[str, float],
    avoid: Set[str] = frozenset(),
    pods: Callable[[str], int] = _equally_full,
    *,
    packed: bool = False,
) -> list[str]:
    """The viable nodes, best first: those to avoid after all others, then by score, then the fewest pods, so that
    many pods at once are no herd, then in the order given.

    `avoid` are nodes that this pod just left, that the scheduler refused for it, or where allocating failed;
    `pods` counts those on a node. `packed`: those with the most pods before others.
    """
    sign = -1 if packed else 1
    return sorted(viable, key=lambda node: (node in avoid, -scores.get(node, 0.0), sign * pods(node)))
