"""A leader that is stopped in the midst of its writes, and wakes when another one leads already."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from tests.cluster.patience import patient
from tests.integration.kube.waiting import LIMIT
from tests.integration.kube.writing_leader import TIMES

from parley.api.resources import LEASES
from parley.kube.fencing import LeasedClient
from parley.kube.http import HttpClient
from parley.kube.lease import LeaseElector
from parley_devcluster import Cluster

PROGRAM = Path(__file__).with_name("writing_leader.py")


async def last_writer(client: HttpClient) -> str:
    return (await client.get(LEASES, "target", "default")).metadata.labels["written-by"]


@pytest.mark.cluster
async def test_a_leader_that_was_stopped_writes_nothing_when_it_wakes(control_plane: Cluster) -> None:
    kubeconfig = str(control_plane.kubeconfig)
    async with patient(kubeconfig) as client:
        await client.create(
            LEASES, {"metadata": {"name": "target", "labels": {"written-by": "nobody"}}}, "default"
        )
        writing = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), kubeconfig, "default", stdout=asyncio.subprocess.PIPE
        )
        assert writing.stdout is not None
        try:
            assert b"leading" in await until_said(writing.stdout, b"leading")
            writing.send_signal(signal.SIGSTOP)

            successor = LeaseElector(client, "default", "leader", "successor", TIMES)
            writer = LeasedClient(client, successor)

            async def lead() -> None:
                await writer.patch(
                    LEASES, "target", {"metadata": {"labels": {"written-by": "successor"}}}, "default"
                )
                writing.send_signal(signal.SIGCONT)
                assert writing.stdout is not None
                said = await until_said(writing.stdout, b"lease default/leader: ")
                assert b"writer did not renew it for" in said
                assert await writing.wait() == 0
                assert await last_writer(client) == "successor"

            await asyncio.wait_for(successor.run(lead), LIMIT)
        finally:
            if writing.returncode is None:
                writing.kill()
                await writing.wait()
            await client.delete(LEASES, "target", "default")
            await client.delete(LEASES, "leader", "default")


async def until_said(output: asyncio.StreamReader, words: bytes) -> bytes:
    """The line of the output that contains the words."""
    async with asyncio.timeout(LIMIT):
        while words not in (line := await output.readline()):
            assert line, f"the process ended without saying {words!r}"
    return line
