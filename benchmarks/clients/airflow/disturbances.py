"""What can go wrong in the middle of a run, done to each way by turns, and what a user sees then.

A node is cordoned and uncordoned; a node is full until Airflow gives up; one task needs two directories that were
begun on two nodes.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import yaml

from benchmarks.clients.airflow.runs import WAYS, Run
from benchmarks.clients.airflow.sightings import Sightings
from benchmarks.clients.airflow.stage import NAMESPACE, SLOTS, Stage
from parley_devcluster.images import PAUSE

DAGS = ("two_claims", "two_grouped_claims", "two_volumes")

_HELD = 20.0
"""Seconds that a node stays cordoned: less than the patience of Airflow's tasks."""

_OF_WAITING = ("The Pod has an Event", "took too long")
_LIMIT = 120.0
_AFTER = 30.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen. Times in seconds."""

    disturbance: str
    way: str
    state: str
    """Of the run, at its end."""
    tasks: dict[str, str]
    pod: str = ""
    """The condition of a pod that waited."""
    explained: str = ""
    """What `parley explain` says of it."""
    airflow: tuple[str, ...] = ()
    """What the log of the pod's task says of its waiting."""
    resumed_s: float = float("nan")
    """From the remedy until a pod that had waited ran."""
    evicted: tuple[str, ...] = ()
    """Pods of others that lost their place."""
    left: tuple[str, ...] = ()
    """What was left of the run half a minute after its end, while the disturbance lasted."""
    left_in_the_end: tuple[str, ...] = ()
    """What was left a minute after it was over."""


class Disturbed:
    """A run that is disturbed, and what is seen of it."""

    def __init__(self, stage: Stage, seen: Sightings, way: str) -> None:
        self.stage, self.seen, self.way = stage, seen, way
        self.run = Run(stage, seen, way)

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return await asyncio.to_thread(self.stage.cluster.kubectl, *arguments, stdin=stdin)

    async def node(self) -> str:
        """That of the run's first task, which has ended."""
        await self.run.until_task("clone")
        bodies = [s.object for s in self.seen.since(self.run.begun) if s.kind == "Pod"]
        clones = (body for body in bodies if body["metadata"]["name"].startswith("clone-"))
        return next(str(body["spec"]["nodeName"]) for body in clones if body["spec"].get("nodeName"))

    async def until(self, holds: Callable[[], Any], what: str, limit: float = _LIMIT) -> Any:
        """What `holds` returns as soon as it is true. Raises TimeoutError."""
        deadline = time.monotonic() + limit
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {limit:g} s: {what}")
            await self.seen.change(1.0)
        return found

    async def waiting(self, prefix: str, limit: float = _LIMIT) -> str:
        """The name of a pod that the scheduler has refused. Raises TimeoutError."""

        def refused() -> str:
            pods = self.seen.latest(self.run.begun, prefix).items()
            return next((name for name, body in pods if _refusal(body)), "")

        return str(await self.until(refused, f"a pod {prefix}... waits", limit))

    async def shown(self, pod: str) -> tuple[str, str]:
        """The pod's condition, and Parley's explanation where its claims are Parley's."""
        body = self.seen.latest(self.run.begun, pod).get(pod, {})
        explained = await asyncio.to_thread(_explain, self.stage, pod) if "claim" in self.way else ""
        return _refusal(body), explained

    async def ended(self) -> tuple[str, dict[str, str]]:
        """The run's state at its end, and those of its tasks."""
        took = await self.run.end(settle=_AFTER)
        tasks = await self.run.tasks()
        return took.state, {name: str(task["state"]) for name, task in tasks.items()}

    async def logged(self, pod: str) -> tuple[str, ...]:
        """What the log of the pod's task says of its waiting, each line once."""
        task = pod.rpartition("-")[0]
        lines = await asyncio.to_thread(self.stage.airflow.log, self.way, self.run.identifier, task)
        return tuple(dict.fromkeys(line for line in lines if any(part in line for part in _OF_WAITING)))


async def cordoned(disturbed: Disturbed) -> Outcome:
    """The node is cordoned when the clone has ended, and released 20 s after the builds wait."""
    await disturbed.run.begin()
    node = await disturbed.node()
    await disturbed.kubectl("cordon", node)
    try:
        pod = await disturbed.waiting("build-")
        await asyncio.sleep(_HELD)
        condition, explained = await disturbed.shown(pod)
    finally:
        await disturbed.kubectl("uncordon", node)
    remedied = time.monotonic()
    running = await disturbed.until(lambda: _running_since(disturbed, remedied), "a build runs")
    state, tasks = await disturbed.ended()
    return Outcome(
        disturbance="cordoned",
        way=disturbed.way,
        state=state,
        tasks=tasks,
        pod=condition,
        explained=explained,
        airflow=await disturbed.logged(pod),
        resumed_s=round(running - remedied, 1),
        left_in_the_end=tuple(disturbed.seen.left(disturbed.run.begun)),
    )


async def full(disturbed: Disturbed) -> Outcome:
    """Others take all pod slots of the node when the clone has ended, until half a minute after the run's end."""
    await disturbed.run.begin()
    node = await disturbed.node()
    filled = time.monotonic()
    names = await _fill(disturbed, node)
    try:
        pod = await disturbed.waiting("build-")
        condition, explained = await disturbed.shown(pod)
        state, tasks = await disturbed.ended()
        left = [what for what in disturbed.seen.left(disturbed.run.begun) if "filler-" not in what]
        words = await disturbed.logged(pod)
        there = disturbed.seen.latest(filled, "filler-")
        evicted = [name for name in names if name not in there or there[name]["status"]["phase"] != "Running"]
    finally:
        await disturbed.kubectl("delete", "pod", "--force", "--grace-period=0", *names)
    await _gone(disturbed)
    return Outcome(
        disturbance="full",
        way=disturbed.way,
        state=state,
        tasks=tasks,
        pod=condition,
        explained=explained,
        airflow=words,
        evicted=tuple(evicted),
        left=tuple(left),
        left_in_the_end=tuple(disturbed.seen.left(disturbed.run.begun)),
    )


async def second(disturbed: Disturbed) -> Outcome:
    """Two tasks begin a directory each, side by side; the third needs both."""
    await disturbed.run.begin()
    await disturbed.until(lambda: disturbed.seen.latest(disturbed.run.begun, "both-"), "the third task's pod")
    pod = condition = explained = ""
    with suppress(TimeoutError):  # it may be the same node
        pod = await disturbed.waiting("both-", _HELD)
        await asyncio.sleep(_HELD / 2)
        condition, explained = await disturbed.shown(pod)
    state, tasks = await disturbed.ended()
    words = await disturbed.logged(pod) if pod else ()
    await _gone(disturbed)
    return Outcome(
        disturbance="second",
        way=disturbed.way,
        state=state,
        tasks=tasks,
        pod=condition,
        explained=explained,
        airflow=words,
        left_in_the_end=tuple(disturbed.seen.left(disturbed.run.begun)),
    )


_WHAT: Mapping[str, tuple[Callable[[Disturbed], Awaitable[Outcome]], Sequence[str]]] = {
    "cordoned": (cordoned, WAYS),
    "full": (full, WAYS),
    "second": (second, DAGS),
}
NAMES = tuple(_WHAT)


async def run(name: str, stage: Stage, seen: Sightings) -> list[Outcome]:
    """The disturbance, of each way."""
    disturb, ways = _WHAT[name]
    return [await disturb(Disturbed(stage, seen, way)) for way in ways]


async def _fill(disturbed: Disturbed, node: str) -> list[str]:
    """Pods of others on the node, until it takes no more; returns their names."""
    shown = await disturbed.kubectl("get", "pods", "-A", f"--field-selector=spec.nodeName={node}", "-o", "name")
    names = [f"filler-{number}" for number in range(SLOTS - len(shown.split()))]
    await disturbed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(_filler(name, node) for name in names))
    wait = ("wait", "--for=jsonpath={.status.phase}=Running", "--timeout=60s", "pod", *names)
    await disturbed.kubectl(*wait)
    return names


def _filler(name: str, node: str) -> Mapping[str, Any]:
    container = {"name": "main", "image": PAUSE, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"nodeName": node, "containers": [container]},
    }


async def _gone(disturbed: Disturbed) -> None:
    deadline = time.monotonic() + _LIMIT / 2
    while disturbed.seen.left(disturbed.run.begun) and time.monotonic() < deadline:
        await disturbed.seen.change(1.0)


def _running_since(disturbed: Disturbed, moment: float) -> float:
    found = disturbed.seen.pod(moment, "build-", ("Running", "Succeeded"))
    return found.at if found else 0.0


def _refusal(pod: Mapping[str, Any]) -> str:
    conditions = pod.get("status", {}).get("conditions", [])
    reasons = (c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False")
    return next((str(c.get("message", c.get("reason"))) for c in reasons), "")


def _explain(stage: Stage, pod: str) -> str:
    command = [sys.executable, "-m", "parley", "explain", "pod", pod, "--namespace", NAMESPACE]
    environment = {**os.environ, "KUBECONFIG": str(stage.cluster.kubeconfig)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip()
