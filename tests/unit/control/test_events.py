"""Events as the API server takes them."""

from datetime import UTC, datetime

from parley.api.resources import EVENTS
from parley.control.events import Recorder
from parley.kube.memory import MemoryServer


async def test_an_event_is_named_after_its_object_so_that_the_name_is_a_dns_name() -> None:
    client = MemoryServer().client()
    recorder = Recorder(client, lambda: datetime(2026, 1, 1, tzinfo=UTC), "parley")

    await recorder.warn("Pod", "v1", "team", "left", "uid-1", "NothingViable", "no node will do")

    (event,) = (await client.list(EVENTS, "team")).items
    assert event.metadata.name.startswith("left-")
    assert (event.reason, event.note) == ("NothingViable", "no node will do")
