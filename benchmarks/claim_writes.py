"""What a write of a ResourceClaim's status costs the API server, by how many ResourceClasses there are:
`python -m benchmarks.claim_writes`. The policy `driver-classes` looks at each of them.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import yaml

from benchmarks.latency import percentile
from benchmarks.stage import control_plane
from benchmarks.usage import Process, cpu_seconds
from parley.api.names import CONDITION_ALLOCATING
from parley.api.resources import CLAIMS, CLASSES
from parley.cli.permissions import account_name, permissions
from parley.kube.http import HttpClient
from parley_devcluster import Cluster
from parley_devcluster.parley import CONTROLLER, NAMESPACE, install

SIZES = (0, 10, 100, 1_000)

_DEPLOY = Path(__file__).parents[1] / "deploy"
_DRIVER = "tokens.parley.dev"
_WRITES = 200
_SEEN = 3.0
"""Seconds after which the API server's own caches have the classes."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the output: milliseconds of a write by each account, and CPU time of the API server for it."""

    classes: int
    p50_ms: dict[str, float]
    cpu_ms: dict[str, float]


async def measure(cluster: Cluster) -> AsyncIterator[Result]:
    """With more and more classes, the writes of a controller and of a standalone driver by turns."""
    accounts = {"controller": CONTROLLER, "driver": account_name(_DRIVER)}
    files = {who: cluster.kubeconfig_for_service_account(NAMESPACE, name) for who, name in accounts.items()}
    made = 0
    async with HttpClient.from_kubeconfig(str(cluster.kubeconfig)) as admin:
        claim = {"metadata": {"name": "one"}, "spec": {"resourceClassName": "class-0"}}
        await admin.create(CLAIMS, claim, "default")
        for size in SIZES:
            for number in range(made, size):
                await admin.create(CLASSES, {"metadata": {"name": f"class-{number}"}, "driverName": _DRIVER})
            made = size
            await asyncio.sleep(_SEEN)
            took = {who: await _writes(cluster, file) for who, file in files.items()}
            p50, cpu = ({who: each[part] for who, each in took.items()} for part in (0, 1))
            yield Result(classes=size, p50_ms=p50, cpu_ms=cpu)


async def _writes(cluster: Cluster, account: Path) -> tuple[float, float]:
    server = Process("kube-apiserver", str(cluster.component("kube-apiserver").pid))
    times = []
    async with HttpClient.from_kubeconfig(str(account)) as client:
        before = cpu_seconds(server)
        for number in range(_WRITES):
            body = {"status": {"conditions": [_progress(number)]}}
            began = time.perf_counter()
            await client.patch(CLAIMS, "one", body, "default", subresource="status")
            times.append(time.perf_counter() - began)
        spent = cpu_seconds(server) - before
    return round(1000 * percentile(sorted(times), 0.5), 1), round(1000 * spent / _WRITES, 1)


def _progress(number: int) -> dict[str, str]:
    """As a driver reports that it works on an allocation."""
    now = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": str(number)}
    return {"type": CONDITION_ALLOCATING, "status": "True", "reason": "InProgress", **now}


async def main() -> None:
    """One JSON line for each number of classes."""
    with control_plane() as cluster:
        install(cluster, _DEPLOY)
        cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(permissions(_DRIVER, NAMESPACE)))
        async for result in measure(cluster):
            sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
