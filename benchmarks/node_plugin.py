"""What the node plugin takes: the real program between a real API server and its sockets, called as by a kubelet.

Nothing runs on the node, and the hooks of the plugin's own driver have no effects: what is measured is the plugin.
Claims are prepared one after the other while more and more are held, then a hundred at the same moment, again and
again; its memory is read with nothing prepared and with all. The plugin runs as deploy/ has it: compiled, and with
the manifest's environment. Another checkout's plugin can be measured in the same run, by turns.
"""

import asyncio
import compileall
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median

import msgspec
import yaml

from benchmarks import usage
from benchmarks.latency import percentile
from benchmarks.usage import Process
from parley.api.builtin import BuiltinClaim
from parley.api.resources import NODES, PODS
from parley.kube.client import Client
from parley.kube.http import HttpClient
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE, NODE_PLUGIN, install
from parley_kubelet.testing import Kubelet, allocated_status, create_claim

NAME = "node-plugin"
ONE_BY_ONE = 400
AT_ONCE = 100
_TIMES_AT_ONCE = 5
_FLUSHES = 50
ROUNDS = 3
_NODE = "bench-node"
_TEAM = "default"
_DRIVER = "device.parley.dev"
_QUIET = 6.0
"""Seconds after which the plugin has published its devices, and looked at their health."""

_ROOT = Path(__file__).parents[1]


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the output: of each number the least of all rounds, as other work of the machine only adds.

    Times are of the call, in milliseconds. `at_once_all_ms` is until the last of a hundred is answered, `flush_ms`
    what the disk takes to flush one small file: a call alone needs four. Memory is what is resident, and of that
    what no other process shares, in MiB.
    `others_cpu_share` is how many processors others than cluster, plugin and benchmark used, at the most.
    """

    workload: str
    checkout: str
    rounds: int
    one_p50_ms: float
    one_p99_ms: float
    one_cpu_ms: float
    unprepare_p50_ms: float
    unprepare_p99_ms: float
    at_once_p50_ms: float
    at_once_p99_ms: float
    at_once_all_ms: float
    empty_mb: float
    full_mb: float
    empty_private_mb: float
    full_private_mb: float
    flush_ms: float
    others_cpu_share: float
    of_against: dict[str, float] = {}
    """The numbers as multiples of those of the other checkout in the same run."""


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    one: list[float]
    one_cpu_ms: float
    unprepare: list[float]
    at_once: list[list[float]]
    empty_mb: float
    full_mb: float
    empty_private_mb: float
    full_private_mb: float
    flush_ms: float
    others_cpu_share: float


async def measure(cluster: Cluster, against: Path | None, profile: Path | None, *, first: bool) -> list[Result]:
    """This checkout's, and then that of the other, if there is one. Raises RuntimeError if a claim is refused."""
    install(cluster, _ROOT / "deploy")
    checkouts = [_ROOT, *([against] if against else [])]
    rounds: dict[Path, list[_Round]] = {checkout: [] for checkout in checkouts}
    async with HttpClient.from_kubeconfig(str(cluster.kubeconfig)) as client:
        claims = await _claims(client)
        for number in range(ROUNDS):
            for checkout in checkouts:
                name = f"{NODE_PLUGIN}-{number}-{checkouts.index(checkout)}"
                async with _plugin(cluster, checkout, name, profile) as (kubelet, process):
                    with _first(cluster, first):
                        rounds[checkout].append(await _round(cluster, kubelet, process, claims))
    results = [_result(checkout, taken) for checkout, taken in rounds.items()]
    return [compared(results[0], results[1]), results[1]] if against else results


async def _claims(client: Client) -> Sequence[BuiltinClaim]:
    """Each has a device of its own; all are reserved for one pod, which nobody runs."""
    await client.create(NODES, {"metadata": {"name": _NODE}})
    container = {"name": "main", "image": "registry.invalid/none"}
    body = {"metadata": {"name": "user"}, "spec": {"schedulerName": "nobody", "containers": [container]}}
    pod = await client.create(PODS, body, _TEAM)
    reserved = [{"resource": "pods", "name": "user", "uid": pod.metadata.uid}]
    return [
        await create_claim(
            client, f"claim-{number}", {**allocated_status(_NODE, [device]), "reservedFor": reserved}, _TEAM
        )
        for number, device in enumerate(_devices())
    ]


def _devices() -> list[str]:
    return [f"gpu-{number}" for number in range(ONE_BY_ONE + AT_ONCE)]


@asynccontextmanager
async def _plugin(
    cluster: Cluster, checkout: Path, name: str, profile: Path | None
) -> AsyncIterator[tuple[Kubelet, Process]]:
    """A plugin that starts with nothing, and has registered."""
    folder = cluster.directory / "node"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    entries = [
        {
            "name": device,
            "model": "bench",
            "memory": "40Gi",
            "deviceNodes": ["/dev/null"],
            "env": {"GPU_UUID": device},
        }
        for device in _devices()
    ]
    (folder / "devices.yaml").write_text(yaml.safe_dump({"devices": entries}))
    registration = folder / "registry" / f"{_DRIVER}-reg.sock"
    account = cluster.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN, node=_NODE)
    program = _program(account, folder, profile)
    component = await asyncio.to_thread(
        cluster.add_program, name, program, environment=_environment(checkout), health=str(registration)
    )
    try:
        async with Kubelet(registration) as kubelet:
            yield kubelet, Process(name, str(component.pid))
    finally:
        await asyncio.to_thread(component.stop, 60)


def _environment(checkout: Path) -> dict[str, str]:
    """The manifest's, and where the checkout's modules are, which are compiled first."""
    packages = [checkout / "driver", checkout / "kubelet-plugin"]
    for package in packages:
        compileall.compile_dir(package, quiet=1)
    documents = yaml.safe_load_all((checkout / "deploy" / "workloads" / "node-plugin.yaml").read_text())
    (container,) = next(iter(documents))["spec"]["template"]["spec"]["containers"]
    given = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    return {**given, "PYTHONPATH": ":".join(map(str, packages))}


def _program(account: Path, folder: Path, profile: Path | None) -> list[str]:
    return [
        *(sys.executable, *(("-m", "benchmarks.sampled", str(profile)) if profile else ("-m",)), "parley_kubelet"),
        *("--kubeconfig", str(account)),
        *("--node-name", _NODE),
        *("--config", str(folder / "devices.yaml")),
        *("--plugins-dir", str(folder / "plugins")),
        *("--plugins-registry-dir", str(folder / "registry")),
        *("--cdi-dir", str(folder / "cdi")),
        *("--state-dir", str(folder / "state")),
    ]


@contextmanager
def _first(cluster: Cluster, wanted: bool) -> Iterator[None]:
    """Inside, cluster, plugin and benchmark do not wait for other work on the machine, if that is wanted."""
    processes = _measured(cluster) if wanted else []
    for process in processes:
        usage.put_first(process, True)
    try:
        yield
    finally:
        for process in processes:
            usage.put_first(process, False)


def _measured(cluster: Cluster) -> list[Process]:
    """The plugin is a program of the cluster's, too."""
    found = [(name, cluster.component(name).pid) for name in cluster.component_names]
    return [Process("benchmark", "self"), *(Process(name, str(pid)) for name, pid in found if pid is not None)]


async def _round(cluster: Cluster, kubelet: Kubelet, process: Process, claims: Sequence[BuiltinClaim]) -> _Round:
    await asyncio.sleep(_QUIET)
    empty, empty_private = usage.resident_megabytes(process), usage.private_megabytes(process)
    began, others = time.monotonic(), _others(cluster)
    singly, together = claims[:ONE_BY_ONE], claims[ONE_BY_ONE:]
    before = usage.cpu_seconds(process)
    one = [await _prepared(kubelet, claim) for claim in singly]
    cpu = (usage.cpu_seconds(process) - before) / len(singly)
    at_once = []
    for _ in range(_TIMES_AT_ONCE):
        at_once.append(await asyncio.gather(*(_prepared(kubelet, claim) for claim in together)))
        await asyncio.gather(*(_unprepared(kubelet, claim) for claim in together))
    await asyncio.gather(*(_prepared(kubelet, claim) for claim in together))
    others = (_others(cluster) - others) / (time.monotonic() - began)
    await asyncio.sleep(_QUIET)
    return _Round(
        one=one,
        one_cpu_ms=1000 * cpu,
        full_mb=usage.resident_megabytes(process),
        full_private_mb=usage.private_megabytes(process),
        unprepare=[await _unprepared(kubelet, claim) for claim in singly],
        at_once=at_once,
        empty_mb=empty,
        empty_private_mb=empty_private,
        flush_ms=_flush_ms(cluster.directory / "node"),
        others_cpu_share=others,
    )


def _others(cluster: Cluster) -> float:
    return usage.busy_seconds() - sum(map(usage.cpu_seconds, _measured(cluster)))


def _flush_ms(folder: Path) -> float:
    """How long the disk takes for a small file, at the median."""
    taken = []
    for number in range(_FLUSHES):
        with (folder / f"flush-{number}").open("wb") as file:
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            taken.append(1000 * (time.perf_counter() - began))
    return median(taken)


async def _prepared(kubelet: Kubelet, claim: BuiltinClaim) -> float:
    began = time.perf_counter()
    answer = (await kubelet.prepare(claim))[claim.metadata.name]
    took = time.perf_counter() - began
    if answer.error:
        raise RuntimeError(answer.error)
    return 1000 * took


async def _unprepared(kubelet: Kubelet, claim: BuiltinClaim) -> float:
    began = time.perf_counter()
    error = (await kubelet.unprepare(claim))[claim.metadata.name]
    took = time.perf_counter() - began
    if error:
        raise RuntimeError(error)
    return 1000 * took


def _result(checkout: Path, rounds: Sequence[_Round]) -> Result:
    at_once = [sorted(time for times in each.at_once for time in times) for each in rounds]
    return Result(
        workload=NAME,
        checkout=checkout.name,
        rounds=len(rounds),
        one_p50_ms=_least(percentile(sorted(each.one), 0.5) for each in rounds),
        one_p99_ms=_least(percentile(sorted(each.one), 0.99) for each in rounds),
        one_cpu_ms=_least(each.one_cpu_ms for each in rounds),
        unprepare_p50_ms=_least(percentile(sorted(each.unprepare), 0.5) for each in rounds),
        unprepare_p99_ms=_least(percentile(sorted(each.unprepare), 0.99) for each in rounds),
        at_once_p50_ms=_least(percentile(times, 0.5) for times in at_once),
        at_once_p99_ms=_least(percentile(times, 0.99) for times in at_once),
        at_once_all_ms=_least(median(map(max, each.at_once)) for each in rounds),
        empty_mb=_least(each.empty_mb for each in rounds),
        full_mb=_least(each.full_mb for each in rounds),
        empty_private_mb=_least(each.empty_private_mb for each in rounds),
        full_private_mb=_least(each.full_private_mb for each in rounds),
        flush_ms=_least(each.flush_ms for each in rounds),
        others_cpu_share=round(max(each.others_cpu_share for each in rounds), 2),
    )


def _least(values: Iterable[float]) -> float:
    return round(min(values), 2)


_COMPARED = (
    "one_p50_ms",
    "one_p99_ms",
    "one_cpu_ms",
    "unprepare_p50_ms",
    "at_once_p50_ms",
    "at_once_all_ms",
    "empty_mb",
    "full_mb",
    "empty_private_mb",
    "full_private_mb",
)


def compared(result: Result, other: Result) -> Result:
    """The result with its numbers as multiples of the other's."""
    shares = {name: round(getattr(result, name) / getattr(other, name), 2) for name in _COMPARED}
    return msgspec.structs.replace(result, of_against=shares)
