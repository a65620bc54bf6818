"""Pods of nodes without a kubelet end as they would with one: nobody says of an unbound pod that it has ended."""

from collections.abc import Collection

import pytest
from tests.cluster.namespace import end_pod

from parley.api.resources import PODS
from parley.kube.client import Call, Client, NotFound
from parley.kube.memory import MemoryServer

TO_NODE = {"target": {"kind": "Node", "name": "node-a"}}


async def bind(client: Client) -> None:
    await client.create_subresource(PODS, "p", "binding", TO_NODE, "team")


class Recording(Client):
    """Notes the writes. A scheduler binds the pod just before the first deletion, if it is to be `bound`."""

    def __init__(self, server: MemoryServer, *, bound: bool = False) -> None:
        super().__init__(server.client())
        self.writes: list[str] = []
        self._others = server.client()
        self._bound = bound

    async def request(self, call: Call) -> bytes:
        if call.writes:
            self.writes.append(" ".join(filter(None, (call.verb, call.subresource))))
        if call.verb == "delete" and self._bound:
            self._bound = False
            await bind(self._others)
        return await super().request(call)


ENDED = ["patch status", "delete"]


@pytest.mark.parametrize(
    ("before", "meanwhile", "expected"),
    [(False, False, ["delete"]), (True, False, ENDED), (False, True, ["delete", *ENDED])],
    ids=["unbound", "bound", "bound meanwhile"],
)
async def test_a_pod_is_said_to_have_ended_only_if_it_is_bound(
    before: bool, meanwhile: bool, expected: Collection[str]
) -> None:
    server = MemoryServer()
    others, client = server.client(), Recording(server, bound=meanwhile)
    container = {"name": "main", "image": "none"}
    await others.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [container]}}, "team")
    if before:
        await bind(others)

    await end_pod(client, "team", "p")
    assert client.writes == expected
    with pytest.raises(NotFound):
        await others.get(PODS, "p", "team")


async def test_one_that_is_gone_is_left_alone() -> None:
    client = Recording(MemoryServer())
    await end_pod(client, "team", "p")
    assert not client.writes
