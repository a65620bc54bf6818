"""A controller is killed at every write of a story, and in no state that the API shows a device is held twice."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.unit.kills import Death, Executioner, at_every_write
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.watching import Watcher

Part = Callable[[World], Awaitable[None]]
Play = Callable[[Callable[[World], Any]], None]
Watch = Callable[[World], Watcher]


def killed_at_every_write(play: Play, watcher: Watch, *parts: Part, after: bool, at_least: int) -> None:
    """The parts of the story, checks among them, are told one after the other while the controller runs."""

    async def life(world: World, death: Death) -> int:
        watching = watcher(world)
        async with Executioner(world, world.start_parley, death) as executioner:
            for part in parts:
                await part(world)
        watching.stop()
        assert watching.faults == []
        return executioner.writes

    at_every_write(play, life, after=after, at_least=at_least)
