"""What happens to the programs of real nodes while pods come and go: plugins and kubelets are killed or stopped,
and started again."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from tests.cluster.nodes import registrations

from parley.devcluster import Cluster
from parley.devcluster.layout import Node
from parley.devcluster.parley import NODE_PLUGIN

_WAYS: Final = (("plugin", "kill"), ("plugin", "kill"), ("plugin", "stop"), ("kubelet", "kill"))
"""Each time that all of them were done, they begin anew in another order."""

_LONGEST_PAUSE: Final = 1.0
_LOOK: Final = 0.1


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
