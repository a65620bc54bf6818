"""Events as the API server takes them, and how many of them there are. In virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime

import pytest
import structlog.testing
from tests.support.faults import FaultClient

from parley.api import reasons
from parley.api.resources import EVENTS
from parley.control.publishing.events import PAUSE, Recorder
from parley.control.telemetry.metrics import Metrics
from parley.kube.client import Call, ServerError
from parley.kube.memory import MemoryServer
from parley.simulate.virtual_time import run


class Told:
    """A recorder for one pod, and what it told so far."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.client = MemoryServer().client()
        self.recorder = Recorder(self.client, lambda: datetime(2026, 1, 1, tzinfo=UTC), "parley", self.metrics)

    async def warn(self, code: str, note: str) -> None:
        await self.recorder.warn("Pod", "v1", "team", "left", "uid-1", code, note)

    async def events(self) -> list[tuple[str, str]]:
        listing = await self.client.list(EVENTS, "team")
        ordered = sorted(listing.items, key=lambda event: int(event.metadata.resource_version))
        return [(event.reason, event.note) for event in ordered]

    def counted(self, name: str, reason: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"reason": reason})


Story = Callable[[Told], Coroutine[None, None, None]]


@pytest.fixture
def play() -> Callable[[Story], None]:
    async def main(story: Story) -> None:
        await story(Told())

    return lambda story: run(main(story))


def test_an_event_is_named_after_its_object_so_that_the_name_is_a_dns_name(play: Callable[[Story], None]) -> None:
    async def story(told: Told) -> None:
        await told.warn(reasons.NOTHING_VIABLE, "no node is available")

        (event,) = (await told.client.list(EVENTS, "team")).items
        assert event.metadata.name.startswith("left-")
        assert (event.reason, event.note) == ("NothingViable", "no node is available")

    play(story)


def test_counts_that_change_all_the_time_make_one_event_in_five_minutes(play: Callable[[Story], None]) -> None:
    async def story(told: Told) -> None:
        for second in range(900):
            await told.warn(reasons.NOTHING_VIABLE, f"{second % 7} of 8 devices are in use")
            await asyncio.sleep(1)

        assert len(await told.events()) == 900 / PAUSE
        assert told.counted("parley_events_total", reasons.NOTHING_VIABLE) == 3
        assert told.counted("parley_events_grouped_total", reasons.NOTHING_VIABLE) == 897

    play(story)


def test_the_same_words_are_not_told_again_while_the_phase_lasts(play: Callable[[Story], None]) -> None:
    async def story(told: Told) -> None:
        for _ in range(3):
            await told.warn(reasons.NOTHING_VIABLE, "no node is available")
            await asyncio.sleep(2 * PAUSE)

        assert len(await told.events()) == 1

    play(story)


def test_another_phase_is_told_at_once(play: Callable[[Story], None]) -> None:
    async def story(told: Told) -> None:
        await told.warn(reasons.NO_CANDIDATES, "no node fits")
        await told.warn(reasons.NOTHING_VIABLE, "no node is available")

        assert [reason for reason, _ in await told.events()] == ["NoCandidates", "NothingViable"]

    play(story)


def test_phases_that_take_turns_are_told_once_each_in_five_minutes(play: Callable[[Story], None]) -> None:
    async def story(told: Told) -> None:
        for attempt in range(100):
            await told.warn(reasons.ALLOCATION_FAILED, f"attempt {attempt}: the array is busy")
            await told.warn(reasons.NOTHING_VIABLE, "no node is available")
            await asyncio.sleep(1)

        assert [reason for reason, _ in await told.events()] == ["AllocationFailed", "NothingViable"]

    play(story)


def test_a_phase_that_comes_back_later_is_told_again_in_the_same_words(play: Callable[[Story], None]) -> None:
    async def story(told: Told) -> None:
        await told.warn(reasons.NOTHING_VIABLE, "no node is available")
        await told.warn(reasons.SCHEDULER_REFUSED, "refused")
        await asyncio.sleep(PAUSE)
        await told.warn(reasons.NOTHING_VIABLE, "no node is available")

        assert [reason for reason, _ in await told.events()] == [
            "NothingViable",
            "SchedulerRefused",
            "NothingViable",
        ]

    play(story)


@pytest.mark.parametrize(
    "code", [reasons.PARAMETERS_INVALID, reasons.PARAMETERS_NOT_FOUND, reasons.PARAMETERS_FORBIDDEN]
)
def test_the_next_of_several_mistakes_is_told_at_once(play: Callable[[Story], None], code: str) -> None:
    async def story(told: Told) -> None:
        await told.warn(code, "claim team/a: parameters.count=0")
        await told.warn(code, "claim team/a: parameters.model=''")

        assert [note for _, note in await told.events()] == [
            "claim team/a: parameters.count=0",
            "claim team/a: parameters.model=''",
        ]

    play(story)


def test_what_was_told_is_forgotten_with_the_object(play: Callable[[Story], None]) -> None:
    async def story(told: Told) -> None:
        await told.warn(reasons.NOTHING_VIABLE, "no node is available")
        told.recorder.forget("uid-1")
        await told.warn(reasons.NOTHING_VIABLE, "no node is available")

        assert len(await told.events()) == 2

    play(story)


def test_each_event_is_one_line_in_the_log(play: Callable[[Story], None]) -> None:
    async def story(told: Told) -> None:
        with structlog.testing.capture_logs() as entries:
            await told.warn(reasons.NOTHING_VIABLE, "0 of 3 nodes are available")
            await told.warn(reasons.NOTHING_VIABLE, "0 of 4 nodes are available")

        assert entries == [
            {
                "event": "needs attention",
                "log_level": "info",
                "pod": "team/left",
                "reason": "NothingViable",
                "message": "0 of 3 nodes are available",
            }
        ]

    play(story)


def test_an_event_that_can_not_be_written_is_logged_and_not_counted(play: Callable[[Story], None]) -> None:
    def refuse(_: Call) -> None:
        raise ServerError(500, "InternalError", "out of order")

    async def story(told: Told) -> None:
        recorder = Recorder(
            FaultClient(told.client, before=refuse),
            lambda: datetime(2026, 1, 1, tzinfo=UTC),
            "parley",
            told.metrics,
        )
        with structlog.testing.capture_logs() as entries:
            await recorder.warn(
                "Pod", "v1", "team", "left", "uid-1", reasons.NOTHING_VIABLE, "no node is available"
            )

        assert (entries[-1]["event"], entries[-1]["pod"]) == ("event not written", "team/left")
        assert told.counted("parley_events_total", reasons.NOTHING_VIABLE) is None

    play(story)


def test_each_of_very_many_objects_gets_its_event_once(play: Callable[[Story], None]) -> None:
    """Those of one tenant are not told again and again, nor are those of others because of them."""
    asked = 0

    def refuse(_: Call) -> None:
        nonlocal asked
        asked += 1
        raise ServerError(500, "InternalError", "out of order")

    async def story(told: Told) -> None:
        client = FaultClient(told.client, before=refuse)
        recorder = Recorder(client, lambda: datetime(2026, 1, 1, tzinfo=UTC), "parley", told.metrics)
        with structlog.testing.capture_logs():
            for _ in range(2):
                for number in range(30_000):
                    await recorder.warn("Pod", "v1", "team", "p", f"u{number}", reasons.NOTHING_VIABLE, "none")

        assert asked == 30_000

    play(story)
