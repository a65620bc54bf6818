"""What pods that wait at the extender cost while much happens that does not help them.

The scheduler tries all of them again at every change of any claim or node, and asks the extender each time.
"""

import asyncio
import time
from functools import partial

import msgspec

from benchmarks import objects, usage
from benchmarks.objects import NEVER, Body
from benchmarks.schedulers import EXTENDER
from benchmarks.stage import ALWAYS, OTHERS, Stage
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, NODES, POD_SCHEDULINGS, PODS, TEMPLATES
from parley_devcluster.parley import CONTROLLER
from parley_devcluster.second_scheduler import SECOND_SCHEDULER

NAME = "extender-waiting-1000"

_WAITING = 1_000
_NODES = 100
_SECONDS = 30
_A_SECOND = 10
_NAMESPACE = "unrelated"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the output: shares of one core, at rest and while there were changes."""

    workload: str
    waiting: int
    changes_per_second: float
    controller_at_rest: float
    controller: float
    second_scheduler: float
    others: float


async def measure(stage: Stage, *, first: bool) -> Result:
    """Let pods wait, then change things. Raises TimeoutError if the pods do not come to rest."""
    await stage.grow_to(_NODES)
    await stage.use(EXTENDER, ALWAYS)
    await stage.api.create_namespace(_NAMESPACE)
    await stage.api.request("POST", TEMPLATES.path(_NAMESPACE), objects.template(NEVER))
    await stage.until(partial(stage.api.has, BUILTIN_TEMPLATES, _NAMESPACE, 1), "the template has a mirror")
    with stage.running_first(first):
        pods = (objects.pod(number, [NEVER], EXTENDER) for number in range(_WAITING))
        await stage.api.create_all(PODS.path(_NAMESPACE), pods)
        told = partial(stage.api.has, POD_SCHEDULINGS, _NAMESPACE, _WAITING)
        await stage.until(told, f"{_WAITING} pods wait")
        await stage.at_rest()
        rest = await _share(stage, 0)
        changing = await _share(stage, _A_SECOND * _SECONDS)
    await _tidy_up(stage)
    return Result(
        workload=NAME,
        waiting=_WAITING,
        changes_per_second=_A_SECOND,
        controller_at_rest=rest[CONTROLLER],
        controller=changing[CONTROLLER],
        second_scheduler=changing[SECOND_SCHEDULER],
        others=changing[OTHERS],
    )


async def _tidy_up(stage: Stage) -> None:
    await stage.api.request("DELETE", f"/api/v1/namespaces/{_NAMESPACE}")

    async def gone() -> bool:
        return not await stage.api.has_namespace(_NAMESPACE)

    await stage.until(gone, "the pods are gone")


async def _share(stage: Stage, changes: int) -> dict[str, float]:
    """What each process used of a core while so many changes were made."""
    before, started = stage.cpu_seconds(), time.monotonic()
    for number in range(_A_SECOND * _SECONDS):
        await asyncio.sleep(max(0.0, started + number / _A_SECOND - time.monotonic()))
        if number < changes:
            await _change(stage, number)
    seconds = time.monotonic() - started
    return {name: round(used / seconds, 3) for name, used in usage.spent(before, stage.cpu_seconds()).items()}


async def _change(stage: Stage, number: int) -> None:
    if number % 2:
        await stage.api.request("POST", BUILTIN_CLAIMS.path(_NAMESPACE), _claim(number))
    else:
        note = {"metadata": {"annotations": {"example.com/number": str(number)}}}
        await stage.api.request("PATCH", NODES.path(None, stage.nodes[number % len(stage.nodes)]), note)


def _claim(number: int) -> Body:
    """One of another driver's."""
    exactly = {"deviceClassName": "others", "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{number}"},
        "spec": {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}},
    }
