"""The program itself, killed by SIGKILL at a few random uses of the disk, its drivers' own among them.

The interpreter tells of them (PEP 578). The kubelet speaks to it and to the next one through their sockets.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import orjson
import pytest
import yaml
from grpc.aio import AioRpcError
from tests.unit.cli.serving import answers_of, served

from parley.api.builtin import BuiltinClaim
from parley.kube.memory import MemoryServer
from parley_kubelet.serving.sockets import is_served
from parley_kubelet.testing import Kubelet, allocated_status, create_claim, until

ROOT = Path(__file__).parents[3]
KILLS = 3
START = 120.0
"""Seconds for a start of the program on a machine that has much to do."""
DEVICES, SCRATCH = "device.parley.dev", "scratch.example.com"

MORTAL = """
import os, signal, sys
from parley_kubelet.main import main

folder, last = sys.argv[1], int(sys.argv[2])
log = os.open(f"{folder}/uses", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
changes = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "shutil.rmtree")
uses = 0

def use(event, arguments):
    global uses
    if event in changes and f"{folder}/node/" in str(arguments[0]):
        uses += 1
        os.write(log, f"{event} {arguments[0]}\\n".encode())
        if uses == last:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(use)
sys.exit(main(sys.argv[3:]))
"""
"""As `parley-kubelet`, but it dies ahead of its n-th use of what lies in the node's folders."""


class Node:
    """Its folders, and the claims that the API server shows."""

    def __init__(self, folder: Path, kubeconfig: Path, claims: Mapping[str, BuiltinClaim]) -> None:
        self.folder = folder
        self.claims = claims
        self._kubeconfig = kubeconfig
        config = folder / "node.yaml"
        place = {SCRATCH: {"folder": str(folder / "node/scratch"), "sizeMiB": 100}}
        config.write_text(yaml.safe_dump({"devices": [{"name": "gpu-0", "model": "a100"}], "drivers": place}))

    @asynccontextmanager
    async def plugin(self, last: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
        """The program; it has ended when the block has."""
        folders = {"plugins": "plugins", "plugins-registry": "registry", "cdi": "cdi", "state": "state"}
        options = {f"{name}-dir": self.folder / "node" / where for name, where in folders.items()}
        options |= {"kubeconfig": self._kubeconfig, "config": self.folder / "node.yaml"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", MORTAL, str(self.folder), str(last), "--node-name=n1"),
            *("--driver=devices", "--driver=examples.scratch.scratch_node:ScratchNode"),
            *(f"--{name}={value}" for name, value in options.items()),
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def call(self, process: asyncio.subprocess.Process, what: str) -> None:
        """Prepare or unprepare all claims. Raises AioRpcError if the plugin dies before it answers."""
        for driver, claim in self.claims.items():
            path = self.folder / "node/registry" / f"{driver}-reg.sock"
            await until(partial(_ready, process, path), limit=START)
            async with Kubelet(path) as kubelet:
                if what == "prepare":
                    assert not (await kubelet.prepare(claim))[claim.metadata.name].error
                else:
                    assert await kubelet.unprepare(claim) == {claim.metadata.name: ""}

    def made(self) -> list[str]:
        """What is there for claims: entries, files of the container runtime's, folders, files of half a write."""
        entries = [
            entry["uid"]
            for file in (self.folder / "node/state").rglob("checkpoint.json")
            for entry in orjson.loads(file.read_bytes())["claims"]
        ]
        files = [*(self.folder / "node/cdi").glob("*.json"), *(self.folder / "node/scratch").glob("*")]
        halves = (self.folder / "node").rglob(".parley-new-*")
        return sorted([*entries, *(path.name for path in (*files, *halves))])


def _ready(process: asyncio.subprocess.Process, registration: Path) -> bool:
    return process.returncode is not None or is_served(registration)


@pytest.fixture
async def node(folder: Path, server: MemoryServer) -> AsyncIterator[Node]:
    statuses = {
        DEVICES: allocated_status("n1", ["gpu-0"]),
        SCRATCH: allocated_status("n1", ["scratch"], driver=SCRATCH, data={"sizeMiB": 60}),
    }
    names = {DEVICES: "gpu", SCRATCH: "disk"}
    claims = {d: await create_claim(server.client(), names[d], status) for d, status in statuses.items()}
    with served(answers_of(server), folder, refused=frozenset({"parley.dev", "resourceslices"})) as kubeconfig:
        yield Node(folder, kubeconfig, claims)


async def life(node: Node, last: int = 0) -> int | None:
    """A plugin that prepares and unprepares everything; how it ended."""
    async with node.plugin(last) as process:
        try:
            for what in ("prepare", "unprepare"):
                await node.call(process, what)
        except AioRpcError:
            assert last
            await process.wait()
    return process.returncode


async def test_after_a_sigkill_at_any_use_of_the_disk_the_next_one_finishes_what_was_begun(node: Node) -> None:
    assert await life(node) == 0
    assert node.made() == []
    uses = (node.folder / "uses").read_text().splitlines()
    seed = 1 if os.environ.get("CI") == "true" else Random().randrange(10_000)
    for last in sorted(Random(seed).sample(range(1, len(uses) - 10), KILLS)):
        print(f"seed {seed}: killed at use {last} of {len(uses)}, {uses[last - 1]}")
        assert await life(node, last) == -signal.SIGKILL
        async with node.plugin() as process:
            await node.call(process, "prepare")
            assert len(node.made()) == 5
            await node.call(process, "unprepare")
        assert node.made() == []
