"""A pod is nominated briefly so that its scheduler tries it again; a nomination by its scheduler stays."""

from typing import Any

import pytest

from parley.api.resources import PODS
from parley.kube.client import Call, Client, Conflict
from parley.kube.memory import MemoryServer
from parley.scheduler.brief_nomination import nominate_briefly
from parley.simulate.cluster import loop_clock
from parley.simulate.virtual_time import run


class Watched(Client):
    """Notes which nodes pods are nominated for."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server.client())
        self.nominated: list[Any] = []

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if call.subresource == "status" and call.resource == PODS:
            self.nominated.append(call.body["status"].get("nominatedNodeName"))
        return answer


async def created(client: Client) -> Any:
    body = {"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    await client.create(PODS.untyped(), body, "default")
    return await client.get(PODS, "pod", "default")


@pytest.mark.parametrize("changed", [False, True])
def test_a_nomination_begins_and_ends_also_if_the_pod_has_changed_since_it_was_seen(changed: bool) -> None:
    async def story() -> None:
        client = Watched(MemoryServer(clock=loop_clock()))
        pod = await created(client)
        if changed:
            await client.patch(PODS, "pod", {"metadata": {"labels": {"any": "thing"}}}, "default")
        await nominate_briefly(client, pod, "a")
        assert client.nominated == ["a", None]

    run(story())


def test_a_scheduler_that_has_nominated_the_pod_since_it_was_seen_keeps_its_nomination() -> None:
    """Pods of lower priority would get the CPU of those that it evicts there."""

    async def story() -> None:
        client = Watched(MemoryServer(clock=loop_clock()))
        pod = await created(client)
        status = {"status": {"nominatedNodeName": "b"}}
        await client.patch(PODS, "pod", status, "default", subresource="status")
        with pytest.raises(Conflict):
            await nominate_briefly(client, pod, "a")
        live = await client.get(PODS, "pod", "default")
        assert live.status.nominated_node_name == "b"

    run(story())
