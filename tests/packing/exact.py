"""How many devices could be in use at most: an exact packer of pods that want whole devices of one node each.

For small instances: it looks at every way in which a node can be filled, and remembers what is left to pack where.
"""

from collections.abc import Iterator, Sequence
from functools import cache

Counts = tuple[int, ...]
"""How many pods want one device, two, three, ..."""


def most_in_use(nodes: Sequence[int], wanted: Sequence[int]) -> int:
    """The most devices that some of the pods can have, on nodes with so many devices each."""
    sizes = range(1, max(wanted, default=0) + 1)
    room = sorted(nodes, reverse=True)

    @cache
    def most(first: int, pods: Counts) -> int:
        """On the nodes from that one on."""
        if first == len(room):
            return 0
        limit = min(sum(room[first:]), sum(size * count for size, count in zip(sizes, pods, strict=True)))
        best = 0
        for taken in fillings(room[first], pods):
            left = tuple(count - gone for count, gone in zip(pods, taken, strict=True))
            here = sum(size * gone for size, gone in zip(sizes, taken, strict=True))
            best = max(best, here + most(first + 1, left))
            if best == limit:
                break
        return best

    return most(0, tuple(wanted.count(size) for size in sizes))


def fillings(room: int, pods: Counts) -> Iterator[Counts]:
    """Every choice of the pods that fits into so many devices, those with many large ones first."""
    if not pods:
        yield ()
        return
    size = len(pods)
    for taken in range(min(pods[-1], room // size), -1, -1):
        for smaller in fillings(room - taken * size, pods[:-1]):
            yield (*smaller, taken)
