"""What happens to the programs of real nodes while pods come and go: plugins and kubelets are killed or stopped,
and started again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from tests.cluster.nodes import registrations

from parley_devcluster import Cluster
from parley_devcluster.layout import Node
from parley_devcluster.parley import NODE_PLUGIN

_WAYS: Final = (("plugin", "kill"), ("plugin", "kill"), ("plugin", "stop"), ("kubelet", "kill"))
"""Each time that all of them were done, they start over in another order."""

_LONGEST_PAUSE: Final = 1.0
_LOOK: Final = 0.1


@asynccontextmanager
async def kept_running(cluster: Cluster, name: str) -> AsyncIterator[None]:
    """Start the program again whenever it ends, as a Deployment does: on a machine that has too much to do, a
    controller may lose its lease at any time."""

    async def keep() -> None:
        while True:
            cluster.component(name).launch()
            await asyncio.sleep(1.0)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    assert keeping.cancelled(), f"{name} could not be started again: {keeping}"


class Disturbances:
    """One after the other, drawn from a seed, until cancelled; then all run. Before each one `progress` returns,
    and the programs are back with all `drivers` of the node's plugin: on a slow machine there are fewer."""

    def __init__(
        self, cluster: Cluster, seed: int, *, drivers: int, progress: Callable[[], Awaitable[None]]
    ) -> None:
        self.tally: Counter[str] = Counter()
        self._cluster = cluster
        self._random = Random(seed)
        self._drivers = drivers
        self._progress = progress

    async def run(self) -> None:
        while True:
            for program, how in self._random.sample(_WAYS, len(_WAYS)):
                await self._progress()
                await asyncio.sleep(self._random.uniform(0.0, _LONGEST_PAUSE))
                await self._one(self._random.choice(self._cluster.nodes), program, how)

    async def _one(self, node: Node, program: str, how: str) -> None:
        name = f"{NODE_PLUGIN}-{node.name}" if program == "plugin" else node.kubelet
        before = registrations(self._cluster, node.name)
        await self._restart(name, how, self._random.uniform(0.0, 1.0))
        self.tally[f"{program} {how}"] += 1
        await self._registered(node.name, before + self._drivers)

    async def _registered(self, node: str, times: int) -> None:
        while registrations(self._cluster, node) < times:  # noqa: ASYNC110 - a log sets no event
            await asyncio.sleep(_LOOK)

    async def _restart(self, name: str, how: str, away: float) -> None:
        component = self._cluster.component(name)
        ending = asyncio.create_task(asyncio.to_thread(component.stop if how == "stop" else component.kill))
        try:
            await asyncio.shield(ending)
            await asyncio.sleep(away)
        finally:
            await ending
            component.launch()
