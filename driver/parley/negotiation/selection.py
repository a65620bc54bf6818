"""The order in which nodes are asked about, and which of the viable nodes is selected. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from zlib import crc32


def rotated(names: Sequence[str], uid: str) -> Iterator[str]:
    """All names, rotated by a hash of the UID, so that different objects ask about different nodes first."""
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
    """The viable nodes, best first: nodes to avoid last, then by score, then by the fewest pods, so that a burst
    of pods spreads, then in the order given.

    `avoid` are nodes that this pod just left, that the scheduler refused for it, or where allocating failed;
    `pods` counts the pods on a node. `packed`: nodes with the most pods come first instead.
    """
    sign = -1 if packed else 1
    return sorted(viable, key=lambda node: (node in avoid, -scores.get(node, 0.0), sign * pods(node)))
