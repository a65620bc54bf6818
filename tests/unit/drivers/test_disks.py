"""The order of disks by what is free, against counting anew."""

import random

from parley.drivers.disks import Disks

NODES = [f"n{i}" for i in range(6)]


def test_the_order_is_that_of_what_is_free_whatever_came_before() -> None:
    draw = random.Random(7)
    disks, sizes, promised = Disks(), dict[str, int](), dict.fromkeys(NODES, 0)
    for _ in range(3000):
        node, amount = draw.choice(NODES), draw.randint(-5, 9)
        if draw.random() < 0.3:
            size = draw.choice([None, 0, 10, 40, 80])
            disks.resize(node, size)
            sizes.pop(node, None)
            if size is not None:
                sizes[node] = size
        else:
            disks.promise(node, amount)
            promised[node] += amount
        free = {name: sizes[name] - promised[name] for name in sizes}
        wanted = draw.randint(0, 50)
        enough = [name for name in free if free[name] >= wanted]
        assert list(disks.fullest(wanted)) == sorted(enough, key=lambda name: (free[name], name))
        assert {name: disks.free(name) for name in NODES} == {**dict.fromkeys(NODES, 0), **free}
        assert {name for name in NODES if name in disks} == set(sizes)
