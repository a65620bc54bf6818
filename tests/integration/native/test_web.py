"""The page at a real control plane: with the controller's rights, and as a command with a user's."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.cluster.manifests import pod, template
from tests.cluster.namespace import Namespace
from tests.cluster.patience import patient
from tests.cluster.watching import LIMIT
from tests.integration.native.conftest import Devices, was_refused

from parley.api import reasons
from parley.cli.web import ServingAddress, serving
from parley.explain.explaining import explain
from parley.explain.model import wire
from parley.kube.clock import utc
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster


async def data(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = orjson.loads(await answer.read())
        return found


async def pages(url: str) -> AsyncIterator[str]:
    """What is told to whoever follows a page."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}?format=stream") as answer:
        async for line in answer.content:
            if line.startswith(b"data: "):
                yield orjson.loads(line.removeprefix(b"data: "))["main"]


async def one_waits(team: Namespace, devices: Devices) -> None:
    await devices(node_1=1)
    await team.create(template("one"), pod("runs", templates={"gpu": "one"}))
    await team.bound("runs")
    await team.create(pod("wants", templates={"gpu": "one"}))
    await team.waits("wants", reasons.NOTHING_VIABLE)
    await was_refused(team, "wants")


async def test_the_controllers_rights_are_enough_to_tell_the_same_and_to_follow(
    team: Namespace, devices: Devices, controller_account: Path
) -> None:
    await one_waits(team, devices)
    told = wire(await explain(team.client, utc(), team.name, "wants"))

    async with (
        patient(controller_account) as account,
        serving(account, ServingAddress("127.0.0.1", 0)) as url,
    ):
        found = await data(f"{url}pods/{team.name}/wants?format=json")
        for kind in ("", "classes/gpu", "nodes/node-1"):
            assert (await data(f"{url}{kind}?format=json"))["unread"] == []
        following = pages(f"{url}pods/{team.name}/wants")
        assert "NothingViable" in await anext(following)
        await devices(node_2=1)
        async with asyncio.timeout(LIMIT):
            while "bound to node-2" not in await anext(following):
                pass
        await following.aclose()  # type: ignore[attr-defined]

    (same,) = found["pods"]
    left_out = {"now": "", "findings": [], "remedies": [], "unread": []}  # ages, and events, which it may not read
    assert {**same, **left_out} == {**told, **left_out}
    assert [remedy["pods"] for remedy in same["remedies"]] == [remedy["pods"] for remedy in told["remedies"]]


async def test_the_command(team: Namespace, devices: Devices, cluster: Cluster) -> None:
    await one_waits(team, devices)

    command = ("-m", "parley", "web", "--address", "0", "--kubeconfig", str(cluster.kubeconfig))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # A shell lets what runs in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT):
            url = (await process.stdout.readline()).decode().split()[0]
            found = await data(f"{url}?format=json")
            process.send_signal(signal.SIGINT)
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert url.startswith("http://127.0.0.1:")
    states = {row["name"]: (row["state"], row["code"]) for row in found["pods"] if row["namespace"] == team.name}
    assert states == {"runs": ("bound", ""), "wants": ("waits", "NothingViable")}
    assert process.returncode == 0
