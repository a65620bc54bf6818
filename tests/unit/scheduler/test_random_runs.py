"""Random lives of runs whose claims are made on demand: whatever happened, at rest nobody waits who need not."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.watching import Watcher

from parley.api.builtin import Pod
from parley.api.resources import CLAIMS, CONFIG_MAPS, PODS, TEMPLATES, Resource
from parley.kube.client import NotFound

RUN, UID = "example.com/run", "example.com/run-uid"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "nameLabel": RUN, "uidLabel": UID}
RUNS = ("7", "8")
STEPS = 40


class Lives:
    """Users, a garbage collector and kills, by chance. Each run may be recreated, with another UID."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self._uids: dict[str, str] = {}
        self._made = 0

    async def play(self) -> None:
        """All that happens."""
        actions: list[Callable[[], Awaitable[None]]] = [
            self._add_task,
            self._add_task,
            self._add_task,
            self._end_task,
            self._delete_task,
            self._delete_claim,
            self._end_run,
            self._remake_template,
            self._kill,
        ]
        for _ in range(STEPS):
            await self._chance.choice(actions)()
            if self._chance.random() < 0.5:
                await self._world.settle(self._chance.choice((0.01, 1, 20)))

    async def end(self) -> None:
        """Tasks of runs that are gone go, too, and what was kept out by others has its turn."""
        for pod in await self._pods():
            if pod.metadata.labels.get(UID) not in self._uids.values():
                await self._world.delete_pod(pod.metadata.name)
        await self.add_template()
        for _ in range(3):
            await self._world.settle(400)
            for pod in await self._pods():
                if pod.spec.node_name:
                    await self._world.finish_pod(pod.metadata.name)
        await self._world.settle(400)

    async def waiting(self) -> list[str]:
        """Tasks that are not bound, though nothing of them is missing."""
        pods = [pod for pod in await self._pods() if not pod.spec.node_name]
        return [pod.metadata.name for pod in pods if RUN in pod.metadata.labels]

    async def add_template(self) -> None:
        """The template, unless it is there."""
        if await self._names(TEMPLATES):
            return
        spec = {"spec": {"resourceClassName": "common"}, "sharedBy": {"podLabel": RUN, "owner": OWNER}}
        await self._world.create(TEMPLATES, {"metadata": {"name": "src", "namespace": NAMESPACE}, "spec": spec})

    async def _pods(self) -> list[Pod]:
        found = (await self._world.client.list(PODS, NAMESPACE)).items
        return [pod for pod in found if pod.status.phase not in ("Succeeded", "Failed")]

    async def _names(self, resource: Resource[Any]) -> list[str]:
        found = (await self._world.client.list(resource, NAMESPACE)).items
        return [item.metadata.name for item in found if not item.metadata.deletion_timestamp]

    async def _uid(self, run: str) -> str:
        if run not in self._uids:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": run}}
            made = await self._world.client.create(CONFIG_MAPS, body, NAMESPACE)
            self._uids[run] = made.metadata.uid
        return self._uids[run]

    async def _add_task(self) -> None:
        self._made += 1
        run = self._chance.choice(RUNS)
        labels = {RUN: run, UID: await self._uid(run)}
        if self._chance.random() < 0.2:
            del labels[self._chance.choice((RUN, UID))]
        spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none"}]}
        if self._world.scheduling_path == "extender":
            spec["schedulerName"] = "parley"
        spec["resourceClaims"] = [{"name": "work", "resourceClaimName": f"src-{run}"}]
        meta = {"name": f"task-{self._made}", "namespace": NAMESPACE, "labels": labels}
        await self._world.create(PODS, {"metadata": meta, "spec": spec})

    async def _end_task(self) -> None:
        bound = [pod.metadata.name for pod in await self._pods() if pod.spec.node_name]
        if bound:
            await self._world.finish_pod(self._chance.choice(bound))

    async def _delete_task(self) -> None:
        await self._delete_one(PODS)

    async def _delete_claim(self) -> None:
        await self._delete_one(CLAIMS)

    async def _delete_one(self, resource: Resource[Any]) -> None:
        if names := await self._names(resource):
            await self._world.client.delete(resource, self._chance.choice(names), NAMESPACE)

    async def _end_run(self) -> None:
        if self._uids:
            run = self._chance.choice(sorted(self._uids))
            del self._uids[run]
            await self._world.client.delete(CONFIG_MAPS, run, NAMESPACE)

    async def _remake_template(self) -> None:
        try:
            await self._world.client.delete(TEMPLATES, "src", NAMESPACE)
        except NotFound:
            await self.add_template()

    async def _kill(self) -> None:
        await self._world.crash()
        self._world.start_parley()


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("seed", range(12))
def test_at_rest_every_task_of_a_present_run_that_has_its_labels_runs(play: Play, seed: int) -> None:
    async def scenario(world: World) -> None:
        watching = Watcher(world.client)
        world.start_parley()
        for node in ("a", "b"):
            await world.add_node(node, devices=4)
        await world.add_class("common", shareable=True, whenUnused={"keepSeconds": 30})
        lives = Lives(world, seed)
        await lives.add_template()
        await lives.play()
        await lives.end()
        assert await lives.waiting() == []
        watching.stop()
        assert watching.faults == []

    play(scenario)
