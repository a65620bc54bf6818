"""Random mixes of nodes and pods, played in a simulated cluster, and judged by an exact packer.

    python -m tests.packing.mixes --mixes 1000

Nodes have 1 to 8 devices, pods want 1 to 8 of one node, small numbers more often, and come at once, in random
order; none ends. In all they want two and a half times of what there is (`--demand`), so that some wait. What is
in use when everything is quiet is compared with the most that could be. Nobody who has to place a pod before the
next one comes reaches that in every mix, and the less the fewer pods wait for a gap of their size.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.packing.exact import most_in_use

from parley.api.resources import CLASSES, NODES, PODS, RESOURCE_SLICES, TEMPLATES, Resource
from parley.drivers.device import DeviceDriver
from parley.scheduler.settings import ControllerSettings
from parley.simulate.cluster import SimulatedCluster
from parley.simulate.objects import Manifest
from parley.simulate.virtual_time import run

WANTED = (1, 1, 1, 1, 2, 2, 2, 3, 4, 4, 5, 6, 7, 8)
NAMESPACE = "default"
SECOND_SCHEDULER = "parley"

DEMAND = 2.5
"""So many times of what there is pods want in all."""


@dataclass(frozen=True)
class Mix:
    """How many devices each node has, and how many each pod wants, in the order in which they come."""

    nodes: tuple[int, ...]
    pods: tuple[int, ...]


@dataclass(frozen=True)
class Played:
    """Devices in use at the end, and the most that could be."""

    in_use: int
    most: int


def mix(seed: int, demand: float = DEMAND) -> Mix:
    """The mix of that number."""
    chance = random.Random(seed)
    of = (2, 4, 8) if seed % 2 else range(1, 9)
    nodes = tuple(chance.choice(of) for _ in range(chance.randint(5, 9)))
    pods: list[int] = []
    while sum(pods) < demand * sum(nodes):
        pods.append(chance.choice(WANTED))
    return Mix(nodes, tuple(pods))


def manifests(played: Mix, scheduler: str, **class_: str) -> list[Manifest]:
    """All that is to be created."""
    found = [
        _manifest(CLASSES, "gpu", None, {"driverName": DeviceDriver.name, **class_}),
        *(_manifest(TEMPLATES, f"of-{size}", NAMESPACE, _asks_for(size)) for size in sorted(set(played.pods))),
    ]
    for number, devices in enumerate(played.nodes):
        name = f"node-{number}"
        found.append(_manifest(NODES, name, None, {"metadata": {"name": name}}))
        listed = [{"name": f"gpu-{index}"} for index in range(devices)]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DeviceDriver.name, "nodeName": name, "pool": pool, "devices": listed}
        found.append(_manifest(RESOURCE_SLICES, f"{name}-devices", None, {"spec": spec}))
    for number, size in enumerate(played.pods):
        entry = {"name": "gpu", "resourceClaimTemplateName": f"of-{size}"}
        container = {"name": "main", "image": "none"}
        pod = {"schedulerName": scheduler, "resourceClaims": [entry], "containers": [container]}
        found.append(_manifest(PODS, f"pod-{number}", NAMESPACE, {"spec": pod}))
    return found


def _asks_for(size: int) -> dict[str, object]:
    return {"spec": {"spec": {"resourceClassName": "gpu", "parameters": {"count": size}}}}


def _manifest(resource: Resource[Any], name: str, namespace: str | None, body: dict[str, object]) -> Manifest:
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **body}
    return Manifest("mix", resource, namespace, name, whole)


def play(played: Mix, scheduler: str = "default-scheduler", **class_: str) -> Played:
    """What becomes of the mix, placed by the cluster's own scheduler or by the second one."""

    async def main() -> int:
        settings = ControllerSettings(scheduler_names=(SECOND_SCHEDULER,) if scheduler == SECOND_SCHEDULER else ())
        async with SimulatedCluster([DeviceDriver()], settings) as cluster:
            await cluster.apply(manifests(played, scheduler, **class_))
            assert await cluster.settle()
            pods = (await cluster.client.list(PODS, NAMESPACE)).items
            return sum(
                played.pods[int(pod.metadata.name.removeprefix("pod-"))] for pod in pods if pod.spec.node_name
            )

    return Played(run(main()), most_in_use(played.nodes, played.pods))


def share(results: Sequence[Played]) -> float:
    """Of what could be in use in all mixes together, how much is."""
    return sum(one.in_use for one in results) / sum(one.most for one in results)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.packing.mixes", description="Play random mixes.")
    parser.add_argument("--mixes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument(
        "--scheduler", default="default-scheduler", choices=["default-scheduler", SECOND_SCHEDULER]
    )
    parser.add_argument("--prefer", default="Pack", choices=["Pack", "Spread"])
    parser.add_argument("--demand", type=float, default=DEMAND, help="of pods, in times of what there is")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.mixes)
    results = [play(mix(seed, asked.demand), asked.scheduler, prefer=asked.prefer) for seed in seeds]
    worst = min(results, key=lambda one: one.in_use / one.most)
    exact = sum(one.in_use == one.most for one in results)
    print(f"{len(results)} mixes, {asked.scheduler}, {asked.prefer}: {share(results):.2%} of what could be in use")
    print(f"as much as could be in {exact}; in the worst {worst.in_use} of {worst.most}")


if __name__ == "__main__":
    main()
