"""What a starting cluster asks its API server: for objects that controllers make, for nodes without kubelets."""

import asyncio

import pytest

from parley.kube.client import NotFound
from parley.kube.memory import MemoryServer
from parley_devcluster import fake_nodes
from parley_devcluster.api import NAMESPACES, NODES, when_found


@pytest.mark.looptime
async def test_an_object_that_is_made_a_little_later_is_waited_for() -> None:
    client = MemoryServer().client()

    async def make() -> None:
        await asyncio.sleep(3)
        await client.create(NAMESPACES, {"metadata": {"name": "team"}})

    making = asyncio.create_task(make())
    found = await when_found(lambda: client.get(NAMESPACES, "team"))
    await making

    assert found["metadata"]["name"] == "team"


@pytest.mark.looptime
async def test_an_object_that_nobody_makes_is_not_found_after_20_seconds() -> None:
    client, loop = MemoryServer().client(), asyncio.get_running_loop()
    before = loop.time()

    with pytest.raises(NotFound):
        await when_found(lambda: client.get(NAMESPACES, "team"))

    assert loop.time() - before == pytest.approx(20, abs=0.2)


async def test_fake_nodes_continue_the_numbers_of_those_that_exist() -> None:
    client = MemoryServer().client()

    first = await fake_nodes.add(client, 2, "fake-", fake_nodes.ALLOCATABLE, {})
    second = await fake_nodes.add(client, 1, "fake-", {"cpu": "2"}, {"disk": "fast"})

    assert (first, second) == (["fake-0", "fake-1"], ["fake-2"])
    added = await client.get(NODES, "fake-2")
    assert added["status"]["allocatable"] == {"cpu": "2"}
    assert added["metadata"]["labels"]["disk"] == "fast"
    assert "taints" not in added.get("spec", {})
