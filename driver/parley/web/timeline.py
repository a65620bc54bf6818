"""The timeline of a pod: its negotiation from the first question to the start of its containers. No I/O.

Only what is recorded: conditions, the PodScheduling's times, allocations, events (the API server forgets those
after an hour).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from parley.api.names import FIELD_MANAGER
from parley.api.wording import counted
from parley.explain.explaining import PodObjects
from parley.explain.findings import TimedEvent
from parley.explain.model import Explanation
from parley.explain.times import moment

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that the component `by` did, reported or observed. `code` is its reason code, if it has one."""

    at: str
    by: str
    code: str
    text: str


def timeline(objects: PodObjects, explained: Explanation) -> tuple[TimelineEntry, ...]:
    """The entries in order of time; those within a second in their usual order."""
    raw, scheduling = objects.raw, objects.scheduling or {}
    found = [*_made(raw), *_claims(explained), *_states(raw), *_negotiation(scheduling), *_events(objects)]
    timed = [(time, one) for one in found if (time := moment(one.at)) is not None]
    return tuple(one for _, one in sorted(timed, key=lambda pair: pair[0]))


def _made(raw: Json) -> Iterator[TimelineEntry]:
    meta = raw.get("metadata", {})
    yield TimelineEntry(meta.get("creationTimestamp") or "", "API server", "", "the pod was created")
    yield TimelineEntry(meta.get("deletionTimestamp") or "", "API server", "", "the pod's graceful deletion ends")


def _states(raw: Json) -> Iterator[TimelineEntry]:
    status = raw.get("status", {})
    for condition in status.get("conditions") or ():
        yield from _condition(condition, raw.get("spec", {}).get("nodeName", ""))
    for container in status.get("containerStatuses") or ():
        yield from _container(container)


_GOOD = {
    "PodReadyToStartContainers": "claims are prepared, and the pod's sandbox is ready",
    "ContainersReady": "all containers are ready",
}


def _condition(condition: Json, node: str) -> Iterator[TimelineEntry]:
    at, kind, good = condition.get("lastTransitionTime") or "", condition.get("type"), condition.get("status")
    if kind == "PodScheduled" and good == "True":
        yield TimelineEntry(at, "scheduler", "", f"bound the pod to node {node}")
    elif kind == "PodScheduled":
        yield TimelineEntry(at, "scheduler", condition.get("reason", ""), condition.get("message", ""))
    elif kind in _GOOD and good == "True":
        yield TimelineEntry(at, "kubelet", "", _GOOD[kind])


def _container(status: Json) -> Iterator[TimelineEntry]:
    name, state = status.get("name", ""), status.get("state") or {}
    if running := state.get("running"):
        yield TimelineEntry(running.get("startedAt") or "", "kubelet", "", f"container {name} runs")
    if ended := state.get("terminated"):
        yield TimelineEntry(ended.get("startedAt") or "", "kubelet", "", f"container {name} runs")
        text = f"container {name} ended with exit code {ended.get('exitCode')}"
        yield TimelineEntry(ended.get("finishedAt") or "", "kubelet", ended.get("reason") or "", text)


def _negotiation(scheduling: Json) -> Iterator[TimelineEntry]:
    meta = scheduling.get("metadata", {})
    made = meta.get("creationTimestamp") or ""
    yield TimelineEntry(made, "controller", "", "recorded the negotiation for the first time")
    for entry in meta.get("managedFields") or ():
        at, manager = entry.get("time") or "", entry.get("manager", "")
        if manager != FIELD_MANAGER:
            yield TimelineEntry(at, f"driver ({manager})", "", "last wrote an answer or allocation")
        elif at != made:
            round_ = scheduling.get("spec", {}).get("round", 0)
            yield TimelineEntry(at, "controller", "", f"last updated the negotiation (round {round_})")


def _claims(explained: Explanation) -> Iterator[TimelineEntry]:
    for claim in explained.claims:
        if claim.state == "offered":
            text = f"offered claim {claim.entry} to the scheduler, for {counted(len(claim.nodes), 'node')}"
            yield TimelineEntry(claim.since, "controller", "", text)
            continue
        held = f": {', '.join(claim.holds)}" if claim.holds else ""
        yield TimelineEntry(claim.since, f"driver {claim.driver}", "", f"claim {claim.entry} was allocated{held}")


def _events(objects: PodObjects) -> Iterator[TimelineEntry]:
    uid = objects.raw.get("metadata", {}).get("uid")
    for event in objects.events:
        if (event.regarding or {}).get("uid") == uid:
            yield TimelineEntry(event.at, _writer(event), event.reason, event.note)


def _writer(event: TimedEvent) -> str:
    return "controller" if event.writer == "parley.dev/controller" else event.writer or "unknown"
