"""What is promised of the nodes' disks, kept in the order of what is free, so that finding the fullest node that
will do costs no more in a large cluster than in a small one.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class PublishedDisk(NamedTuple):
    """What a ResourceSlice says of its node's disk; `size` is less than 0 if there is none. `identity` tells it
    from others that the node had or will have, "" if nothing does."""

    generation: int
    size: int = -1
    enforces: bool = False
    identity: str = ""


class Disks:
    """The disks of all nodes: how large each is, how much of it is promised, and which has the least left."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._promised: defaultdict[str, int] = defaultdict(int)
        self._by_free: list[tuple[int, str]] = []

    def __contains__(self, node: str) -> bool:
        return node in self._sizes

    def size(self, node: str) -> int:
        """Bytes in all, 0 if the node has no disk."""
        return self._sizes.get(node, 0)

    def free(self, node: str) -> int:
        """Bytes that are promised to nobody; fewer than 0 if the disk became smaller than what is."""
        return self._sizes[node] - self._promised[node] if node in self._sizes else 0

    def resize(self, node: str, size: int | None) -> None:
        """The node's disk is this large now; None: it has none."""
        with self._moved(node):
            self._sizes.pop(node, None)
            if size is not None:
                self._sizes[node] = size

    def promise(self, node: str, size: int) -> None:
        """So many bytes more are promised there; a negative number takes a promise back."""
        with self._moved(node):
            self._promised[node] += size
            if not self._promised[node]:
                del self._promised[node]

    def fullest(self, wanted: int) -> Iterator[str]:
        """The nodes with as much room, those with the least first. Do not change anything while iterating."""
        first = bisect_left(self._by_free, (wanted, ""))
        return (self._by_free[i][1] for i in range(first, len(self._by_free)))

    @contextmanager
    def _moved(self, node: str) -> Iterator[None]:
        if node in self._sizes:
            del self._by_free[bisect_left(self._by_free, (self.free(node), node))]
        yield
        if node in self._sizes:
            insort(self._by_free, (self.free(node), node))
