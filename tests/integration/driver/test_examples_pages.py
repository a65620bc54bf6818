"""The pages of the two standalone examples that the docs site has, as a reader follows them: a driver in Go, and
one whose allocations take long. Ports and nodes are those of this machine, and the disk is attached sooner."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import reduce
from pathlib import Path

import pytest
from tests.cluster.namespace import Namespace
from tests.cluster.reader import ROOT, Reader, line
from tests.cluster.replicas import Replicas
from tests.cluster.watching import LIMIT
from tests.integration.driver.test_go_driver import require_go
from tests.support.shown import below, commands

from parley_devcluster import Cluster
from parley_devcluster.machine import free_ports

pytestmark = pytest.mark.cluster

EXAMPLES = ROOT / "examples"
GO, ATTACHED = ((EXAMPLES / name / "README.md").read_text() for name in ("go-driver", "attached"))
PLACED = "kubectl wait --for=condition=PodScheduled --timeout=90s pod/"
END = "--force --grace-period=0"
"""No kubelet ends a pod of these nodes."""


@pytest.fixture
async def reader(cluster: Cluster, team: Namespace, controllers: Replicas, tmp_path: Path) -> Reader:
    """In a checkout, whose cluster has a controller."""
    await controllers.lead()
    reader = Reader.of(cluster, tmp_path, GOCACHE=go_cache())
    (tmp_path / "examples").unlink()
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return reader


def go_cache() -> str:
    """What Go has compiled on this machine; "" without Go."""
    go = shutil.which("go")
    command = [go, "env", "GOCACHE"] if go else ["true"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@asynccontextmanager
async def in_the_background(reader: Reader, commands: list[str], said: str) -> AsyncIterator[None]:
    """Commands of which some go on in the background, once one has said that."""
    script = "\n".join(["set -e", "trap 'kill $(jobs -p)' EXIT", *commands, "wait"])
    async with reader.typed(script) as process:
        await line(process, said)
        yield


async def test_a_driver_in_another_language(reader: Reader) -> None:
    require_go()
    folder, build, proxy, start, apply, *look = below(GO, "Run it")
    (port,) = map(str, free_ports(1))
    begun = [folder, build, proxy.replace("8001", port), start.replace("8001", port)]

    async with in_the_background(reader, begun, "Starting to serve"):
        await reader(f"{folder}; {apply}")
        await reader(f"{PLACED}clerk")
        schedulings, claims = [await reader(command) for command in look]
        await reader(f"{folder}; kubectl delete -f seats.yaml --timeout=90s {END}")

    assert "clerk" in schedulings
    assert "seats.example.com" in claims


async def test_a_disk_that_is_attached_where_the_pod_goes_and_not_where_a_port_is_broken(
    reader: Reader, tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not on PATH, by which the page looks at the array")
    (port,) = map(str, free_ports(1))
    here = {"9700": port, "--seconds 20": "--seconds 2", "node-": "fake-", "/tmp/": f"{tmp_path}/"}
    disks = reader.folder / "examples" / "attached" / "disks.yaml"
    disks.write_text(disks.read_text().replace("9700", port))
    array, driver, apply, watch, describe, volumes, delete, gone, *faults = (
        reduce(lambda text, one: text.replace(*one), here.items(), command) for command, _ in commands(ATTACHED)
    )

    async with reader.typed(array) as serving, reader.typed(driver) as working:
        await line(serving, "Running on")
        await line(working, "lease acquired")
        await reader(apply)
        await reader(f"{PLACED}trainer")
        async with reader.typed(watch) as watching:
            assert "fake-" in await line(watching, "trainer")
        assert "attached.example.com" in await reader(describe)
        (held,) = json.loads(await reader(volumes))
        assert held["attachment"]["node"] == await reader("kubectl get pod trainer -o jsonpath={.spec.nodeName}")
        await reader(f"{delete} {END}")
        await until_printed(reader, gone, "[]")

        for fault in faults:
            await reader(fault)
        await reader(apply)
        await reader(f"{PLACED}trainer")
        assert await reader("kubectl get pod trainer -o jsonpath={.spec.nodeName}") == "fake-2"
        await reader(f"{delete} {END}")
        await until_printed(reader, gone, "[]")
        await reader("kubectl delete -f examples/attached/disks.yaml --ignore-not-found --timeout=90s")


async def until_printed(reader: Reader, command: str, text: str) -> None:
    """Type it until it prints just that."""
    async with asyncio.timeout(LIMIT):
        while (await reader(command)).strip() != text:  # noqa: ASYNC110 - nobody tells when it does
            await asyncio.sleep(0.5)
