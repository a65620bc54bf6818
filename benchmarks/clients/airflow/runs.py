"""One run of a DAG, begun and followed to its end, and what it took."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from benchmarks.clients.airflow.provisioner import HELPER
from benchmarks.clients.airflow.sightings import Sightings
from benchmarks.clients.airflow.source import IMAGE
from benchmarks.clients.airflow.stage import Stage

WITH_CLAIM, WITH_VOLUME = "with_claim", "with_volume"
WAYS = (WITH_CLAIM, WITH_VOLUME)

T = TypeVar("T")

ENDED = ("success", "failed")
_POLL = 1.0
_LIMIT = 600.0
_GONE = 60.0
_BEGUN = ("Running", "Succeeded", "Failed")


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took. Times in seconds."""

    way: str
    state: str
    objects: int
    """All that were created, Events aside."""
    pods: int
    helpers: int
    """Of the pods those that only make and remove directories."""
    events: int
    first_task_s: float
    """From the trigger until the first task's container ran."""
    first_pod_s: float
    """From the creation of the first task's pod until its container ran: without Airflow's own part."""
    end_s: float
    """From the trigger until the last task had ended."""
    gone_s: float
    """From then until nothing of the run was left in the cluster."""
    left: tuple[str, ...]
    """What was left after that, if anything."""
    kinds: dict[str, int]


class Run:
    """A run of one of the ways."""

    def __init__(self, stage: Stage, seen: Sightings, way: str) -> None:
        self._stage, self._seen = stage, seen
        self.way = way
        self.begun = 0.0
        self.identifier = ""

    async def begin(self, **parameters: str) -> None:
        """Trigger it."""
        values = {"repository": self._stage.repository, "image": IMAGE, **parameters}
        self.begun = time.monotonic()
        self.identifier = await asyncio.to_thread(self._stage.airflow.trigger, self.way, values)

    async def state(self) -> Any:
        """As Airflow shows it."""
        return await asyncio.to_thread(self._stage.airflow.run, self.way, self.identifier)

    async def tasks(self) -> Mapping[str, Any]:
        """Its task instances."""
        return await asyncio.to_thread(self._stage.airflow.tasks, self.way, self.identifier)

    async def until_task(self, task: str) -> None:
        """Return when that task has succeeded. Raises TimeoutError."""
        await _until(self.tasks, lambda tasks: tasks[task]["state"] == "success")

    async def ended(self) -> str:
        """Its state when it has ended. Raises TimeoutError."""
        shown = await _until(self.state, lambda run: run["state"] in ENDED)
        return str(shown["state"])

    async def end(self, settle: float = _GONE) -> Took:
        """Follow it to its end, and until nothing is left of it, or for so long. Raises TimeoutError."""
        shown = await _until(self.state, lambda run: run["state"] in ENDED)
        seconds = _seconds(shown["queued_at"], shown["end_date"])
        ended = self.begun + seconds
        deadline = time.monotonic() + settle
        while (left := self._seen.left(self.begun)) and time.monotonic() < deadline:
            await self._seen.change(_POLL)
        return self._took(shown["state"], ended, tuple(left))

    def _took(self, state: str, ended: float, left: tuple[str, ...]) -> Took:
        created = dict(self._seen.created(self.begun))
        came, began = self._seen.pod(self.begun, "clone-"), self._seen.pod(self.begun, "clone-", _BEGUN)
        events = created.pop("Event", 0)
        helpers = sum(name.startswith(HELPER) for name in self._seen.names(self.begun, "Pod"))
        return Took(
            way=self.way,
            state=state,
            objects=sum(created.values()),
            pods=created.get("Pod", 0),
            helpers=helpers,
            events=events,
            first_task_s=_since(self.begun, began.at if began else None),
            first_pod_s=_since(came.at if came else None, began.at if began else None),
            end_s=round(ended - self.begun, 1),
            gone_s=max(0.0, _since(ended, self._seen.last_gone(self.begun))),
            left=left,
            kinds=created,
        )


async def _until(ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    async with asyncio.timeout(_LIMIT):
        while True:
            if holds(found := await ask()):
                return found
            await asyncio.sleep(_POLL)


def _since(first: float | None, then: float | None) -> float:
    return float("nan") if first is None or then is None else round(then - first, 1)


def _seconds(first: str, then: str) -> float:
    return (datetime.fromisoformat(then) - datetime.fromisoformat(first)).total_seconds()
