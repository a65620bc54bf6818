"""Who Parley is compared with: Kubernetes' own benchmark of its scheduler, scheduler_perf, in two releases. Pure.

`STRUCTURED` allocates in the scheduler's memory, as Kubernetes does today. `CLASSIC` negotiates between scheduler
and driver through the API server, as Parley does, in the last release that could. Each runs a test case of its own
release: one claim a pod, from a template, all pods created at once in an empty cluster. Changed are the numbers of
pods, nodes and devices only, so that they are those of the workload that is measured by turns with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.objects import DEVICES_PER_NODE
from benchmarks.workloads import Workload
from parley_devcluster.versions import CLASSIC_DRA, STRUCTURED_DRA, GoModule, scheduler_perf

TEST_CASE = "SchedulingWithResourceClaimTemplate"
NAMESPACE = "test"
"""Where the test case creates the pods that are measured."""

_LABEL = "performance"
_FOLDER = "test/integration/scheduler_perf"


@dataclass(frozen=True, slots=True)
class Peer:
    """One release's scheduler_perf, the tests in a `folder` of Kubernetes.

    That folder has `configuration` and `templates`, which are read from the folder that it is started in.
    `based_on` names the workload of which the other parameters are taken.
    """

    name: str
    version: str
    folder: str
    configuration: str
    templates: str
    based_on: str

    @property
    def label(self) -> str:
        """What a table calls it."""
        return f"{self.name} {self.version}"

    @property
    def module(self) -> GoModule:
        """What it is built from."""
        return scheduler_perf(self.version, self.folder)


STRUCTURED = Peer(
    name="structured",
    version=STRUCTURED_DRA,
    folder=f"{_FOLDER}/dra",
    configuration="performance-config.yaml",
    templates="templates",
    based_on="2000pods_200nodes",
)
CLASSIC = Peer(
    name="classic",
    version=CLASSIC_DRA,
    folder=_FOLDER,
    configuration="config/performance-config.yaml",
    templates="config/dra",
    based_on="2000pods_100nodes",
)
PEERS: Sequence[Peer] = (STRUCTURED, CLASSIC)


def comparable(workload: Workload) -> bool:
    """Whether a test case of theirs is like it: one claim a pod, all at once, nothing taken, nobody waits."""
    return len(workload.asks) == 1 and not (workload.one_by_one or workload.taken or workload.waiting)


def configuration(peer: Peer, shipped: str, pods: int, nodes: int) -> str:
    """The one test case with so many pods and nodes, from the configuration that the peer ships.

    Raises ValueError where that has no such test case or workload.
    """
    case = _named(yaml.safe_load(shipped), TEST_CASE, peer)
    parameters = _named(case["workloads"], peer.based_on, peer)["params"]
    changed = {
        "measurePods": pods,
        "nodesWithDRA": nodes,
        "initClaims": 0,
        "initPods": 0,
        "maxClaimsPerNode": DEVICES_PER_NODE,
    }
    workload = {
        "name": workload_name(pods, nodes),
        "labels": [_LABEL],
        "params": {name: changed.get(name, value) for name, value in parameters.items()},
    }
    steps = [_with_devices(step) for step in case["workloadTemplate"]]
    return yaml.safe_dump([{**case, "workloadTemplate": steps, "workloads": [workload]}], sort_keys=False)


def workload_name(pods: int, nodes: int) -> str:
    """As scheduler_perf names its own."""
    return f"{pods}pods_{nodes}nodes"


def command(program: Path, results: Path) -> list[str]:
    """Runs the test case once, with a full log on stdout and stderr, and leaves its figures in that folder."""
    return [
        str(program),
        "-test.run=^$",
        "-test.bench=^BenchmarkPerfScheduling$",
        "-test.benchtime=1x",
        "-test.timeout=30m",
        "-test.v=true",  # or the log of a benchmark is cut off after ten lines
        f"-perf-scheduling-label-filter={_LABEL}",
        f"-data-items-dir={results}",
    ]


def environment(base: Mapping[str, str], programs: Path, scratch: Path, module_cache: Path) -> dict[str, str]:
    """Where it finds etcd and the files of its module, and writes etcd's data; log lines are in UTC.

    Built with -trimpath, it knows its module's place only below `TEST_SRCDIR/TEST_WORKSPACE`.
    """
    return {
        **base,
        "PATH": f"{programs}:{base.get('PATH', '')}",
        "TMPDIR": str(scratch),
        "TEST_SRCDIR": str(module_cache.parent),
        "TEST_WORKSPACE": module_cache.name,
        "TZ": "UTC",
        "KUBE_CACHE_MUTATION_DETECTOR": "false",  # as in production, and as its own README says
        "KUBE_INTEGRATION_ETCD_URL": "http://127.0.0.1:1",  # nobody: it would take an etcd that runs already
    }


def etcd_script(etcd: Path, pid_file: Path) -> str:
    """Starts etcd as the development cluster does, without waiting for the disk, and tells its process id."""
    note = f'echo $$ > "{pid_file}.partial" && mv "{pid_file}.partial" "{pid_file}"'
    return f'#!/bin/sh\n{note}\nexec "{etcd}" --unsafe-no-fsync "$@"\n'


def _with_devices(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """With as many devices on a node as in our workloads, where the step has a number of them."""
    given = step.get("templateParams", {})
    return {**step, "templateParams": {**given, "numDevices": DEVICES_PER_NODE}} if "numDevices" in given else step


def _named(entries: Sequence[Mapping[str, Any]], name: str, peer: Peer) -> Mapping[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise ValueError(f"{peer.configuration} of {peer.label} has no {name!r}")
