"""How far a reader has to follow one pod: the functions and files that an ordinary pod passes from its first event
until it is bound.

    python -m benchmarks.pod_path

Counts what `driver/parley` runs of `scheduler`, `control` and `negotiation` for one pod with one generated claim
in a simulated cluster that has served another pod before: distinct functions in the order in which each is first
reached (comprehensions and lambdas belong to the function around them), their files, and how often the way comes
back to a file that it had left. Functions that lead into another file are counted apart, and marked with *: to
know where the pod goes next a reader has to open those. The others only look something up or compute it.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from parley.api.resources import BUILTIN_CLAIMS, CLASSES, NODES, PODS, RESOURCE_SLICES, TEMPLATES
from parley.drivers.device import DeviceDriver
from parley.simulate import virtual_time
from parley.simulate.cluster import SimulatedCluster
from parley.simulate.objects import Manifest

_ROOT = Path(sys.modules[SimulatedCluster.__module__].__file__ or "").parents[1]
_PACKAGES = tuple(str(_ROOT / package) for package in ("scheduler", "control", "negotiation"))
_DRIVER = DeviceDriver.name


def _manifest(resource: Any, body: dict[str, Any]) -> Manifest:
    meta = body["metadata"]
    return Manifest("", resource, meta.get("namespace"), meta["name"], body)


def _cluster_objects() -> list[Manifest]:
    device = {"name": "gpu-0"}, {"name": "gpu-1"}
    pool = {"name": "node", "generation": 1, "resourceSliceCount": 1}
    slice_ = {"driver": _DRIVER, "nodeName": "node", "pool": pool, "devices": list(device)}
    template = {"spec": {"resourceClassName": "gpu"}}
    return [
        _manifest(NODES, {"metadata": {"name": "node"}}),
        _manifest(RESOURCE_SLICES, {"metadata": {"name": "node"}, "spec": slice_}),
        _manifest(CLASSES, {"metadata": {"name": "gpu"}, "driverName": _DRIVER}),
        _manifest(TEMPLATES, {"metadata": {"name": "one", "namespace": "default"}, "spec": template}),
    ]


def _pod(name: str) -> Manifest:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    container = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": claims}
    return _manifest(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def _bound(cluster: SimulatedCluster, name: str) -> None:
    listing = await cluster.client.list(PODS, "default")
    async for event in cluster.client.watch(PODS, "default", resource_version=listing.resource_version):
        pod = event.object
        if pod is not None and pod.metadata.name == name and pod.spec.node_name:
            return


@dataclass(frozen=True, slots=True)
class Step:
    """A function that a pod passes, and whether the way goes on from it into another file."""

    code: CodeType
    leads_on: bool

    @property
    def file(self) -> str:
        return str(Path(self.code.co_filename).relative_to(_ROOT))


def _is_counted(code: CodeType) -> bool:
    return code.co_filename.startswith(_PACKAGES) and not code.co_name.startswith("<")


def _caller(frame: FrameType) -> CodeType | None:
    """The nearest counted function that the call is made from."""
    before = frame.f_back
    while before is not None and not _is_counted(before.f_code):
        before = before.f_back
    return before.f_code if before is not None else None


async def way() -> list[Step]:
    """The functions that a pod passes, in the order in which each is first reached."""
    reached: dict[CodeType, None] = {}
    leading: set[CodeType] = set()

    def on_call(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not _is_counted(code):
            return
        reached.setdefault(code)
        caller = _caller(frame)
        if caller is not None and caller.co_filename != code.co_filename:
            leading.add(caller)

    async with SimulatedCluster() as cluster:
        await cluster.apply([*_cluster_objects(), _pod("first")])
        await cluster.settle()
        sys.setprofile(on_call)
        try:
            await cluster.apply([_pod("second")])
            async with asyncio.timeout(60):
                await _bound(cluster, "second")
        finally:
            sys.setprofile(None)
        assert (await cluster.client.list(BUILTIN_CLAIMS, "default")).items
    return [Step(code, code in leading) for code in reached]


def returns(files: list[str]) -> int:
    """How often the sequence comes back to a file that it had left."""
    left: set[str] = set()
    count = 0
    for before, file in pairwise(files):
        if file != before:
            left.add(before)
            count += file in left
    return count


def _length(steps: Sequence[Step]) -> str:
    files = [step.file for step in steps]
    return f"{len(steps)} functions in {len(set(files))} files, {returns(files)} returns to a file left before"


def main() -> None:
    """Print the way and its length."""
    steps = virtual_time.run(way())
    for step in steps:
        mark = "*" if step.leads_on else " "
        print(f"{mark} {step.file}:{step.code.co_firstlineno} {step.code.co_qualname}")
    print(f"passed: {_length(steps)}")
    print(f"leading into another file: {_length([step for step in steps if step.leads_on])}")


if __name__ == "__main__":
    main()
