"""The nodes' disks and the space promised on them, sorted by free space, so that finding the fullest node with
enough room costs no more in a large cluster than in a small one.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class PublishedDisk(NamedTuple):
    """A node's disk as published in a ResourceSlice; `size` is less than 0 if there is none. `identity`
    distinguishes it from earlier and later disks of the node, "" if unknown."""

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
        self._most_free: dict[Hashable, int] = {}

    def __contains__(self, node: str) -> bool:
        return node in self._sizes

    def size(self, node: str) -> int:
        """The size of the node's disk in bytes, 0 if it has none."""
        return self._sizes.get(node, 0)

    def free(self, node: str) -> int:
        """The bytes that are not promised; negative if the disk became smaller than the promised space."""
        return self._sizes[node] - self._promised[node] if node in self._sizes else 0

    def resize(self, node: str, size: int | None) -> None:
        """Sets the size of the node's disk; None: it has none."""
        with self._reordered(node):
            self._sizes.pop(node, None)
            if size is not None:
                self._sizes[node] = size

    def promise(self, node: str, size: int) -> None:
        """Adds to the promised bytes; a negative number takes a promise back."""
        with self._reordered(node):
            self._promised[node] += size
            if not self._promised[node]:
                del self._promised[node]

    def fullest(self, wanted: int) -> Iterator[str]:
        """The nodes with so many free bytes, those with the least first. Change nothing while iterating."""
        first = bisect_left(self._by_free, (wanted, ""))
        return (self._by_free[i][1] for i in range(first, len(self._by_free)))

    def most_free(self, key: Hashable, allows: Callable[[str], bool]) -> int:
        """The most free bytes of a node that `allows` accepts, less than 0 if there are none. It is remembered by
        the `key`, which stands for `allows`, until a disk changes or `forget_most_free` is called."""
        if (found := self._most_free.get(key)) is None:
            nodes = ((free, node) for free, node in reversed(self._by_free) if allows(node))
            found = self._most_free[key] = next(nodes, (-1, ""))[0]
        return found

    def forget_most_free(self) -> None:
        """Forget the results of `most_free`: other nodes may be accepted now."""
        self._most_free.clear()

    @contextmanager
    def _reordered(self, node: str) -> Iterator[None]:
        self.forget_most_free()
        if node in self._sizes:
            del self._by_free[bisect_left(self._by_free, (self.free(node), node))]
        yield
        if node in self._sizes:
            insort(self._by_free, (self.free(node), node))
