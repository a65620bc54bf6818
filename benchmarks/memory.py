"""How much memory the controller takes in a large cluster: 5,000 nodes with devices, 20,000 pods, 5,000 claims.

The objects are in a real API server. All pods are created bound, so that no scheduler has to place them; those
with a claim get it allocated where they are, like any pod that others bound. Nobody runs them.
"""

import asyncio
import time
from collections.abc import Iterator
from functools import partial

import msgspec

from benchmarks import objects, usage
from benchmarks.objects import DEVICE, Body
from benchmarks.stage import Stage
from parley.api.resources import BUILTIN_TEMPLATES, POD_SCHEDULINGS, PODS, TEMPLATES

NAME = "memory-5000nodes"
_NODES = 5_000
_DEVICES = 8
_PODS = 20_000
_CLAIMS = 5_000
_NAMESPACE = "large"
_LIMIT = 900.0
_QUIET = 10.0
"""Seconds after which a controller that found everything there has nothing to do any more."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the output, in MB of resident memory. `empty_mb` before anything was there, `grown_mb` of the
    controller that saw everything come, `restarted_mb` of another one that found it there, and `restarted_peak_mb`
    the most that this one had until then."""

    workload: str
    nodes: int
    devices: int
    pods: int
    claims: int
    empty_mb: float
    nodes_mb: float
    grown_mb: float
    restarted_mb: float
    restarted_peak_mb: float
    seconds: float


async def measure(stage: Stage, *, first: bool) -> Result:
    """Fill the cluster, which should be empty. Raises TimeoutError if that does not come to its end."""
    started = time.monotonic()
    empty = usage.resident_megabytes(stage.controller)
    with stage.running_first(first):
        await stage.grow_to(_NODES, _DEVICES)
        await asyncio.sleep(_QUIET)
        nodes = usage.resident_megabytes(stage.controller)
        await _fill(stage)
    grown = usage.resident_megabytes(stage.controller)
    await stage.restart_parley()
    await asyncio.sleep(3 * _QUIET)
    stage.check_alive()
    return Result(
        workload=NAME,
        nodes=_NODES,
        devices=_NODES * _DEVICES,
        pods=_PODS,
        claims=_CLAIMS,
        empty_mb=empty,
        nodes_mb=nodes,
        grown_mb=grown,
        restarted_mb=usage.resident_megabytes(stage.controller),
        restarted_peak_mb=usage.peak_megabytes(stage.controller),
        seconds=round(time.monotonic() - started, 1),
    )


async def _fill(stage: Stage) -> None:
    await stage.api.create_namespace(_NAMESPACE)
    await stage.api.request("POST", TEMPLATES.path(_NAMESPACE), objects.template(DEVICE))
    await stage.until(
        partial(stage.api.has, BUILTIN_TEMPLATES, _NAMESPACE, 1), "the template has a mirror", _LIMIT
    )
    await stage.api.create_all(PODS.path(_NAMESPACE), _pods(stage.nodes))
    told = partial(stage.api.has, POD_SCHEDULINGS, _NAMESPACE, _CLAIMS)
    await stage.until(told, f"{_CLAIMS} claims are allocated", _LIMIT)
    await asyncio.sleep(_QUIET)


def _pods(nodes: list[str]) -> Iterator[Body]:
    """Pods of the size that they have in clusters: about 5 KB as JSON, most of which Parley does not read."""
    for number in range(_PODS):
        pod = objects.pod(number, [DEVICE] if number < _CLAIMS else [])
        (container,) = pod["spec"]["containers"]
        body = {**container, **_DETAILS}
        metadata = {**pod["metadata"], "labels": _LABELS, "annotations": _ANNOTATIONS}
        yield {
            **pod,
            "metadata": metadata,
            "spec": {**pod["spec"], "nodeName": nodes[number % len(nodes)], "containers": [body]},
        }


_LABELS = {f"app.kubernetes.io/{name}": f"a-usual-{name}" for name in ("name", "instance", "component", "part-of")}
_ANNOTATIONS = {f"example.com/{name}": name * 20 for name in ("checksum", "configuration", "restarted-at")}
_PROBE = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3}
_DETAILS = {
    "env": [{"name": f"SETTING_{number}", "value": f"the value of setting {number}"} for number in range(25)],
    "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
}
