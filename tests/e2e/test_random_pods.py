"""Pods come and go at random on two real nodes while plugins and kubelets are killed: nothing is handed out twice,
and when all are gone nothing is left of them.

    RANDOM_PODS=200 RANDOM_SEED=7 pytest tests/e2e/test_random_pods.py -s

plays more of them, and the same ones again. The cluster is the module's own: it has more devices, and serves the
example's folders beside them.
"""

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Final

import orjson
import pytest
import yaml
from tests.cluster.crowd import Crowd, Kind, needs
from tests.cluster.disturbances import Disturbances, kept_running
from tests.cluster.handouts import nothing_handed_out_twice
from tests.cluster.in_use import no_device_in_two_pods
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import SCRATCH, SCRATCH_DRIVER, may_publish
from tests.cluster.nodes import configure, wait_for_registration
from tests.cluster.patience import PatientClient, patient
from tests.cluster.starting import DEPLOY, directory, require_machine, settle

from parley.kube.client import Client
from parley_devcluster import Cluster, NodeOptions, machine
from parley_devcluster.layout import Node
from parley_devcluster.parley import CONTROLLER, run_parley

pytestmark = pytest.mark.cluster

DEVICES: Final = {node: [f"{node}-{number}" for number in range(8)] for node in ("east", "west")}
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "scratch"

PODS: Final = int(os.environ.get("RANDOM_PODS", "50"))
AT_ONCE: Final = 14
LEFT: Final = 150.0
"""Seconds after which nothing may be left: a kubelet looks for claims of pods that it does not know once in a
minute."""


@pytest.fixture(scope="module")
def seed() -> int:
    """CI plays what it played before; everybody else looks for something new."""
    given = os.environ.get("RANDOM_SEED") or ("1" if os.environ.get("CI") == "true" else None)
    return int(given) if given else Random().randrange(10_000)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the nodes' folders for claims are."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory, folders: Path) -> Iterator[Cluster]:
    """Two nodes with eight devices each, and room for folders."""
    require_machine(real_nodes=True)
    files = configure(tmp_path_factory.mktemp("devices"), DEVICES)
    for node, file in files.items():
        settings = {SCRATCH: {"folder": str(folders / node), "sizeMiB": 1000}}
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "drivers": settings}))
    with (
        pytest.MonkeyPatch.context() as environment,
        directory() as place,
        Cluster.start(place, nodes=[NodeOptions(name) for name in DEVICES]) as started,
    ):
        environment.setenv("PYTHONPATH", str(EXAMPLE), prepend=os.pathsep)
        may_publish(started)
        run_parley(
            started,
            deploy=DEPLOY,
            devices=files,
            controller_arguments=("--driver", "device", "--driver", "scratch_driver:ScratchDriver"),
            node_arguments=("--driver", "devices", *SCRATCH_DRIVER),
        )
        settle(started)
        for name in DEVICES:
            wait_for_registration(started, name, times=2)
        yield started


@pytest.fixture
async def user(crowded: Cluster) -> AsyncIterator[Client]:
    """The API server as the tests' user sees it."""
    async with patient(crowded.kubeconfig) as client:
        yield PatientClient(client)


async def test_pods_come_and_go_while_plugins_and_kubelets_are_killed_and_nothing_is_left(
    crowded: Cluster, user: Client, folders: Path, seed: int
) -> None:
    print(f"RANDOM_PODS={PODS} RANDOM_SEED={seed}")
    mounts = set(machine.mounts_below(crowded.directory))
    began = time.monotonic()
    watched = nothing_handed_out_twice(user, for_many=["scratch"])
    kept = kept_running(crowded, CONTROLLER)
    async with watched, kept, Namespace(user, f"team-{uuid.uuid4().hex[:6]}") as team:
        await team.create(*needs(SCRATCH))
        crowd = Crowd(team, seed, PODS, AT_ONCE)
        disturbances = Disturbances(crowded, seed, drivers=2, progress=crowd.progress)
        async with no_device_in_two_pods(crowded, lambda device, pod: shared(crowd, device, pod)):
            disturbing = asyncio.create_task(disturbances.run())
            try:
                await crowd.live()
            finally:
                disturbing.cancel()
                await asyncio.gather(disturbing, return_exceptions=True)
    lived = time.monotonic() - began
    try:
        await nothing_left(crowded, folders, mounts)
    finally:
        took = time.monotonic() - began
        print(f"{dict(crowd.tally)}, {dict(disturbances.tally)}, {lived:.0f} s, at rest after {took:.0f} s")
    assert disturbances.tally
    assert crowd.ran >= PODS // 10


def shared(crowd: Crowd, device: str, pod: str) -> bool:
    """The disk is everybody's, and one device that of all who use the shared claim."""
    return device == "PARLEY_DEVICE_SCRATCH" or crowd.kinds.get(pod) is Kind.SHARED


async def nothing_left(cluster: Cluster, folders: Path, mounts: set[Path]) -> None:
    """Return when nothing is left on the nodes. Raises AssertionError with what is."""
    deadline = time.monotonic() + LEFT
    while left := {node.name: found for node in cluster.nodes if (found := traces(node, folders, mounts))}:
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.5)


def traces(node: Node, folders: Path, mounts: set[Path]) -> list[str]:
    """What reminds of pods on the node: plugin, container runtime, kubelet and drivers have places for it."""
    entries = [
        entry["name"]
        for file in (node.parley_dir / "checkpoint.json", node.parley_dir / SCRATCH / "checkpoint.json")
        if file.exists()
        for entry in orjson.loads(file.read_bytes())["claims"]
    ]
    made = [*node.cdi_dir.iterdir(), *(folders / node.name).glob("*"), *node.parley_dir.rglob(".parley-new-*")]
    kept = node.kubelet_dir / "dra_manager_state"
    claims = orjson.loads(kept.read_bytes()) if kept.exists() else {}
    mounted = set(machine.mounts_below(node.folder)) - mounts
    return [
        *entries,
        *map(str, made),
        *map(str, sorted(mounted)),
        *([str(claims)] if "claim" in str(claims) else []),
    ]
