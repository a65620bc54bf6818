"""What controller, scheduler, kubelet, node plugin and drivers have reported about a pod. No I/O.

The API server deletes events after an hour; older reports are in conditions and the PodScheduling.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod, Struct
from parley.api.models import PodScheduling
from parley.api.names import BINDING_CONDITIONS, DEVICE_CLASS, FIELD_MANAGER
from parley.api.resources import Resource
from parley.api.wording import listed, noun_for
from parley.control.claims import unused
from parley.control.claims.podclaims import PodClaim
from parley.explain.feasibility import is_unasked
from parley.explain.matrix import answered
from parley.explain.model import PodFinding
from parley.explain.remedies import ADVICE
from parley.explain.snapshot import Snapshot
from parley.explain.times import span

_ANSWER_SECONDS = 30.0
"""Seconds after which the controller reports that a driver does not answer."""

_WAIT_CODES = frozenset({*ADVICE, reasons.NO_CANDIDATES, reasons.NOTHING_VIABLE})
"""Codes of why a pod waits: a pod has one of them at a time."""

_NO_PLUGIN = (
    " (the driver's node plugin does not run on that node, or has just started: see its pod there, kubectl -n"
    " parley-system get pods -o wide; the kubelet tries again by itself, within 90 s)"
)

_KUBELET_MEANINGS = {
    "no relationship found between node": (
        " (the kubelet asked before the API server's node authorizer had seen the binding: the kubelet tries again"
        " by itself, within 90 s)"
    ),
    "/dra.sock: connect: ": _NO_PLUGIN,
    " is not registered": _NO_PLUGIN,
}
"""Explanations of the kubelet's messages about claims that it could not prepare, by words in the message. The
words are those of Kubernetes' pkg/kubelet/cm/dra/plugin and plugin/pkg/auth/authorizer/node."""

_UNPREPARED = "FailedPrepareDynamicResources"
_KUBELET = "kubelet"
_DEFAULT = "default-scheduler"


class EventSource(Struct, frozen=True):
    component: str = ""


class TimedEvent(Struct, frozen=True):
    """An event with its times: those of events.k8s.io, or of the core API if its writer uses that."""

    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    reporting_controller: str = ""
    deprecated_source: EventSource = EventSource()
    reason: str = ""
    note: str = ""
    type: str = ""
    regarding: Any = None

    @property
    def at(self) -> str:
        """When the event last occurred."""
        return self.deprecated_last_timestamp or self.event_time or ""

    @property
    def writer(self) -> str:
        """The component that wrote the event."""
        return self.reporting_controller or self.deprecated_source.component


_LONGEST = 1024
"""The characters of an event's text that are kept, as many as in an event of events.k8s.io. The core API takes any
number, and users may write events about their pods."""


def _shortened(event: TimedEvent) -> TimedEvent:
    return TimedEvent(
        event_time=event.event_time,
        deprecated_last_timestamp=event.deprecated_last_timestamp,
        reporting_controller=event.reporting_controller[:_LONGEST],
        deprecated_source=EventSource(component=event.deprecated_source.component[:_LONGEST]),
        reason=event.reason[:_LONGEST],
        note=event.note[:_LONGEST],
        type=event.type[:_LONGEST],
        regarding={"uid": (event.regarding or {}).get("uid")},
    )


EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True, TimedEvent).read_through(_shortened)


def findings(
    snapshot: Snapshot,
    pod: Pod,
    raw: Mapping[str, Any],
    scheduling: PodScheduling | None,
    asked_at: str,
    claims: Sequence[PodClaim],
    events: Sequence[TimedEvent],
    code: str,
) -> tuple[PodFinding, ...]:
    """All findings about the pod. `raw` is the pod with every field, `asked_at` when the controller last wrote its
    PodScheduling, `code` why it waits now."""
    mirrors = [claim.mirror for claim in claims if claim.mirror is not None]
    return (
        *_unused(pod, claims),
        *_not_made(snapshot, pod, claims),
        *_controller(snapshot, pod, scheduling, claims, events),
        *_unanswered(snapshot, scheduling, claims, asked_at),
        *_failures(scheduling),
        *_scheduler(pod),
        *_devices(mirrors),
        *_health(raw),
        *_events(pod, events, code),
    )


def _unused(pod: Pod, claims: Sequence[PodClaim]) -> Iterator[PodFinding]:
    if entries := unused.unused(pod, claims):
        yield PodFinding("controller", reasons.CLAIM_UNUSED, unused.message(entries))


def _controller(
    snapshot: Snapshot,
    pod: Pod,
    scheduling: PodScheduling | None,
    claims: Sequence[PodClaim],
    events: Sequence[TimedEvent],
) -> Iterator[PodFinding]:
    """Reports that the controller has done nothing for the pod, where it should have."""
    key = (pod.metadata.namespace, pod.metadata.name)
    if scheduling is not None or snapshot.hides_scheduling(key):
        return
    if any(_is_about(pod, event) and _reporter(event) == "controller" for event in events):
        return
    if any(_awaits_kubernetes(snapshot, pod, claim) for claim in claims):
        return
    if any(claim.holding is not None and pod.metadata.uid in claim.holding.pods for claim in claims):
        return
    if pod.spec.node_name or pod.spec.scheduling_gates or is_unasked(pod):
        return
    seconds = snapshot.seconds_since(pod.metadata.creation_timestamp or "")
    since = f" for {span(seconds)}" if seconds is not None else ""
    name = pod.spec.scheduler_name
    who = "it runs" if name in ("", _DEFAULT) else f"it and scheduler {name}, which may have to ask it first, run"
    text = f"has not reported on the pod{since}: check whether {who} (kubectl -n parley-system get pods,leases)"
    yield PodFinding("controller", "", text)


def _awaits_kubernetes(snapshot: Snapshot, pod: Pod, claim: PodClaim) -> bool:
    """Whether the claim waits for the kube-controller-manager alone: the template that it needs exists."""
    if claim.name or claim.problem is None or not claim.problem.passes:
        return False
    entry = next(entry for entry in pod.spec.resource_claims if entry.name == claim.entry)
    template = pod.metadata.namespace, entry.resource_claim_template_name or ""
    return snapshot.state.cluster.template_mirror(template) is not None


def _not_made(snapshot: Snapshot, pod: Pod, claims: Sequence[PodClaim]) -> Iterator[PodFinding]:
    """Reports claims that the kube-controller-manager has not created from their templates."""
    waiting = [claim.entry for claim in claims if _awaits_kubernetes(snapshot, pod, claim)]
    seconds = snapshot.seconds_since(pod.metadata.creation_timestamp or "")
    if not waiting or seconds is None:
        return
    text = (
        f"has not made the pod's {noun_for(len(waiting), 'claim')} {listed(waiting)} for {span(seconds)}: see the "
        "pod's events for what keeps it from that, such as a quota, or check whether it runs"
    )
    yield PodFinding("kube-controller-manager", "", text)


def _unanswered(
    snapshot: Snapshot, scheduling: PodScheduling | None, claims: Sequence[PodClaim], asked_at: str
) -> Iterator[PodFinding]:
    """Reports drivers that have not answered the last round about claims that still wait for an answer."""
    if scheduling is None or scheduling.spec.selected_node:
        return
    blocked = (claim.entry for claim in claims if claim.problem and snapshot.is_certain(claim.problem))
    round_, settled = scheduling.spec.round, {*answered(scheduling), *blocked}
    late = scheduling.status.waiting_for == reasons.DRIVER_NOT_ANSWERING
    for asked in scheduling.spec.claims:
        if asked.name not in settled:
            since = _unanswered_since(snapshot, asked_at, late=late)
            text = f"has not answered about claim {asked.name}{since} (round {round_})"
            yield PodFinding(f"driver {asked.driver_name}", "", text, asked_at)


def _unanswered_since(snapshot: Snapshot, asked_at: str, *, late: bool) -> str:
    seconds = snapshot.seconds_since(asked_at)
    if seconds is None:
        return " for more than 30 s" if late else ""
    return f" for {span(seconds + (_ANSWER_SECONDS if late else 0))}"


def _failures(scheduling: PodScheduling | None) -> Iterator[PodFinding]:
    for answer in scheduling.status.claims if scheduling is not None else ():
        if answer.failure is not None:
            for_ever = ", and never will" if answer.failure.permanent else ""
            text = f"could not allocate claim {answer.name} on node {answer.failure.node_name}{for_ever}: "
            yield PodFinding(f"driver {answer.driver_name}", "", text + answer.failure.message)


def _scheduler(pod: Pod) -> Iterator[PodFinding]:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            usual = (
                " (the scheduler's usual message while a claim is being negotiated)"
                if DEVICE_CLASS in condition.message
                else ""
            )
            text = condition.message + usual
            yield PodFinding("scheduler", condition.reason, text, condition.last_transition_time or "")


def _devices(mirrors: Sequence[BuiltinClaim]) -> Iterator[PodFinding]:
    """Reports conditions of allocated devices, except Parley's own binding conditions."""
    for mirror in mirrors:
        for device in mirror.status.devices:
            for condition in device.conditions:
                if condition.type not in BINDING_CONDITIONS:
                    text = f"device {device.pool}/{device.device}: {condition.type}={condition.status}"
                    message = f"{text}: {condition.message}" if condition.message else text
                    by = f"driver {device.driver}"
                    yield PodFinding(
                        by, condition.reason or condition.type, message, condition.last_transition_time or ""
                    )


def _health(raw: Mapping[str, Any]) -> Iterator[PodFinding]:
    """Reports devices in containers whose health, as node plugins reported it to the kubelet, is not Healthy."""
    for container in raw.get("status", {}).get("containerStatuses") or ():
        for resource in container.get("allocatedResourcesStatus") or ():
            for one in resource.get("resources") or ():
                if one.get("health") != "Healthy":
                    details = one.get("message") or "no details"
                    text = f"{one.get('resourceID')} of container {container.get('name')}: {details}"
                    yield PodFinding("node plugin", str(one.get("health", "Unknown")), text)


def _events(pod: Pod, events: Sequence[TimedEvent], code: str) -> Iterator[PodFinding]:
    """Warning events about the pod, latest first, without those that other findings repeat."""
    mine = [event for event in events if _is_about(pod, event)]
    waited = bool(code or pod.spec.node_name)
    for event in sorted(mine, key=lambda event: event.at, reverse=True):
        by = _reporter(event)
        known = event.reason == reasons.CLAIM_UNUSED or (_is_scheduler(event) and not pod.spec.node_name)
        known = known or (by == "controller" and event.reason == code)
        if event.type != "Warning" or known or _is_settled(pod, event):
            continue
        past = _is_scheduler(event) or (by == "controller" and waited and event.reason in _WAIT_CODES)
        yield PodFinding(
            by, event.reason, f"{'(earlier) ' if past else ''}{event.note}{_meaning(event)}", event.at
        )


def _meaning(event: TimedEvent) -> str:
    prepares = event.reason == _UNPREPARED
    return next((means for words, means in _KUBELET_MEANINGS.items() if prepares and words in event.note), "")


def _is_about(pod: Pod, event: TimedEvent) -> bool:
    return (event.regarding or {}).get("uid") == pod.metadata.uid


def _is_settled(pod: Pod, event: TimedEvent) -> bool:
    """Whether the event is outdated or usual: a claim that could not be created at first (its template came with
    the pod), or the scheduler's message about every pod whose claims are being negotiated."""
    if _is_scheduler(event) and DEVICE_CLASS in event.note:
        return True
    made = {status.name for status in pod.status.resource_claim_statuses}
    wanted = {entry.name for entry in pod.spec.resource_claims if entry.resource_claim_template_name}
    return event.reason == "FailedResourceClaimCreation" and wanted <= made


def _is_scheduler(event: TimedEvent) -> bool:
    return event.reason == "FailedScheduling"


def _reporter(event: TimedEvent) -> str:
    if event.writer == "parley.dev/controller":
        return "controller"
    if event.reason == _UNPREPARED:
        return "node plugin"
    return _KUBELET if event.writer == _KUBELET else "scheduler" if _is_scheduler(event) else event.writer


def written_at(raw: Mapping[str, Any] | None) -> str:
    """When the controller last changed the object, by its managed fields; "" if that is not recorded."""
    for entry in (raw or {}).get("metadata", {}).get("managedFields") or ():
        if entry.get("manager") == FIELD_MANAGER:
            return str(entry.get("time") or "")
    return ""
