"""Killing a client's user at a call: instead of the call, or after the server did it."""

from typing import Any

import pytest
from tests.support.faults import FaultClient, NumberedCall, kill_at

from parley.api.resources import Resource
from parley.kube.client import AlreadyExists, NotFound
from parley.kube.memory import MemoryServer

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, dict[str, Any])


class Killed(BaseException):
    """The process is gone."""


async def scenario(client: FaultClient) -> None:
    """Four writes and a read."""
    await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default")
    await client.patch(CONFIG_MAPS, "a", {"data": {"key": "1"}}, "default")
    await client.get(CONFIG_MAPS, "a", "default")
    await client.patch(CONFIG_MAPS, "a", {"data": {"key": "2"}}, "default")
    await client.delete(CONFIG_MAPS, "a", "default")


async def state(server: MemoryServer) -> str:
    """What is left of the scenario."""
    try:
        found = await server.client().get(CONFIG_MAPS, "a", "default")
    except NotFound:
        return "absent"
    return str(found.get("data", {}).get("key", "empty"))


@pytest.mark.parametrize(
    ("write", "before", "after"), [(1, "absent", "empty"), (2, "empty", "1"), (4, "2", "absent")]
)
async def test_a_write_is_prevented_or_unheard(write: int, before: str, after: str) -> None:
    first, second = MemoryServer(), MemoryServer()

    with pytest.raises(Killed):
        await scenario(FaultClient(first.client(), before=kill_at(write, Killed())))
    with pytest.raises(Killed):
        await scenario(FaultClient(second.client(), after=kill_at(write, Killed())))

    assert (await state(first), await state(second)) == (before, after)


async def test_calls_are_told_in_words_and_writes_are_counted() -> None:
    client = FaultClient(MemoryServer().client())

    await scenario(client)

    assert client.writes == 4
    assert [str(call) for call in client.calls] == [
        "write 1: create configmaps default/a",
        "write 2: patch configmaps default/a",
        "get configmaps default/a",
        "write 3: patch configmaps default/a",
        "write 4: delete configmaps default/a",
    ]


async def test_a_refused_write_is_counted_but_was_not_done() -> None:
    done: list[NumberedCall] = []
    client = FaultClient(MemoryServer().client(), after=done.append)
    body = {"metadata": {"generateName": "", "name": "a"}}
    await client.create(CONFIG_MAPS, body, "default")

    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, body, "default")

    assert client.writes == 2
    assert [call.write for call in done] == [1]


async def test_a_watch_can_be_cut_when_it_begins() -> None:
    def refuse(call: NumberedCall) -> None:
        if call.verb == "watch":
            raise Killed

    client = FaultClient(MemoryServer().client(), before=refuse)
    listing = await client.list(CONFIG_MAPS)

    with pytest.raises(Killed):
        await anext(client.watch(CONFIG_MAPS, resource_version=listing.resource_version))


async def test_subresources_are_told_apart() -> None:
    pods = Resource("", "v1", "pods", "Pod", True, dict[str, Any])
    client = FaultClient(MemoryServer().client())
    await client.create(pods, {"metadata": {"name": "a"}}, "default")

    await client.create_subresource(pods, "a", "binding", {"target": {"name": "node-1"}}, "default")
    await client.patch(pods, "a", {"status": {"phase": "Running"}}, "default", subresource="status")

    assert [str(call) for call in client.calls[1:]] == [
        "write 2: create pods default/a/binding",
        "write 3: patch pods default/a/status",
    ]
