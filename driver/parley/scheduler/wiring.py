"""Builds the parts of the controller and passes each what it needs. Contains no decisions.

Parts that would otherwise depend on each other communicate through a work queue or the wakeups.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from parley.control.allocation import Allocator
from parley.control.caches.cluster import ClusterCache
from parley.control.caches.tombstones import Tombstones
from parley.control.claims.reconciler import ClaimReconciler
from parley.control.claims.stranding import Stranding
from parley.control.claims.templates import TemplateReconciler
from parley.control.class_statuses import ClassStatuses
from parley.control.decision.sight import pods_are_seen, show_cluster
from parley.control.holding import Holding
from parley.control.immediate import ImmediateClaims
from parley.control.ledger import Ledger
from parley.control.limits import Limits
from parley.control.limits import topic as limit_topic
from parley.control.nominations import Nomination, Nominations
from parley.control.presence import DriverPresence
from parley.control.publishing.events import Recorder
from parley.control.publishing.podscheduling import Publisher
from parley.control.records import Records
from parley.control.release.deallocation import Deallocator
from parley.control.release.leftovers import LostNodesData
from parley.control.release.releases import Releases
from parley.control.release.unseen_users import UnseenUsers
from parley.control.release.unused_claims import UnusedClaimDeadlines
from parley.control.reservation_pods import ReservationPods
from parley.control.state import State
from parley.control.telemetry.metrics import Metrics
from parley.control.wakeups import Wakeups
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.scheduler.changes import Changes
from parley.scheduler.claim_preemption import ClaimPreemption
from parley.scheduler.extender.path import ExtenderPath
from parley.scheduler.extender.posting import Posting
from parley.scheduler.extender.scope import Scope
from parley.scheduler.native.path import NativePath
from parley.scheduler.negotiator import Negotiator
from parley.scheduler.placement import Placement
from parley.scheduler.pods import Pods
from parley.scheduler.queues import Queues
from parley.scheduler.reconciler import Reconciler
from parley.scheduler.reporting import PodReporter
from parley.scheduler.settings import ControllerSettings
from parley.scheduler.standalone import StandaloneSessions
from parley.scheduler.withdrawal import Withdrawal
from parley.sdk.embedded import EmbeddedDriver


@dataclass(frozen=True)
class Base:
    """What all parts of the controller are built on: the state, the work queues, and what writes and reports."""

    client: Client
    clock: Clock
    metrics: Metrics
    settings: ControllerSettings
    state: State
    wakeups: Wakeups
    tombstones: Tombstones
    recorder: Recorder
    queues: Queues
    presence: DriverPresence
    over_api: Mapping[str, EmbeddedDriver]
    """The drivers in this process that are asked through the API, as standalone ones are, by name."""


@dataclass(frozen=True)
class Parts:
    """The controller's parts that its tasks, its endpoints and tests call."""

    claims: ClaimReconciler
    templates: TemplateReconciler
    publisher: Publisher
    deallocator: Deallocator
    reconciler: Reconciler
    extender: ExtenderPath | None
    changes: Changes
    classes: ClassStatuses
    reservation_pods: ReservationPods


@dataclass(frozen=True)
class _Control:
    """The parts that allocate, record and release claims, which the scheduling paths call."""

    allocator: Allocator
    records: Records
    deallocator: Deallocator
    unused_deadlines: UnusedClaimDeadlines
    reservation_pods: ReservationPods


def base(
    client: Client,
    drivers: Mapping[str, EmbeddedDriver],
    over_api: Mapping[str, EmbeddedDriver],
    settings: ControllerSettings,
    clock: Clock,
    metrics: Metrics,
) -> Base:
    """The base of a controller, with an empty state."""
    wakeups, recorder = Wakeups(), Recorder(client, clock, settings.instance, metrics)
    tombstones = Tombstones(recorder)
    cluster = ClusterCache(
        client,
        tombstones.received,
        pods_seen=pods_are_seen(drivers),
        reservations_in=settings.reservation_pods.namespace,
    )

    def nomination_ended(nomination: Nomination) -> None:
        for driver in nomination.requests:
            wakeups.wake(("driver", driver), (nomination.node,))
        for name in nomination.claims.values():
            wakeups.wake(("claim", nomination.pod.namespace, name))
        for class_name in {claim.class_name for one in nomination.requests.values() for claim in one.claims}:
            wakeups.wake(limit_topic(class_name, nomination.pod.namespace))

    def namespace_of(uid: str) -> str:
        holding = ledger.get(uid)
        return holding.namespace if holding is not None else ""

    queues = Queues.empty(cluster, namespace_of)

    def users_changed(holding: Holding) -> None:
        if holding.driver in drivers and not holding.standalone:
            drivers[holding.driver].users_changed(holding.uid)

    ledger = Ledger(Limits(wakeups.wake, cluster.namespace_labels), queues.enqueue_reservations, users_changed)
    state = State(cluster, ledger, drivers, Nominations(nomination_ended))
    show_cluster(state)
    presence = DriverPresence(client, settings.namespace, [*drivers, *over_api])
    return Base(client, clock, metrics, settings, state, wakeups, tombstones, recorder, queues, presence, over_api)


def parts(base: Base) -> Parts:
    """The parts of a controller that work on the base's state."""
    client, state, queues, settings = base.client, base.state, base.queues, base.settings
    publisher = Publisher(client, queues.publications, state.cluster.scheduling, state.cluster.has_pod)
    control = _control(base, publisher)
    reporter = PodReporter(publisher, base.recorder, base.metrics, settings.pod_schedulings)
    pods = Pods(state.cluster, reporter, queues.pods, state.ledger.count_reserving)
    base.wakeups.subscribe(pods.wake)
    base.wakeups.subscribe_to_usage(pods.wake)
    base.wakeups.subscribe(queues.wake)
    sessions = StandaloneSessions(state, control.records, pods, base.wakeups, base.presence, settings.candidates)
    native, extender = _paths(base, pods, control, sessions)
    reconciler = Reconciler(
        client,
        state,
        pods,
        control.deallocator,
        control.allocator,
        Withdrawal(control.records, pods, sessions),
        paths=(native,) if extender is None else (extender, native),
    )
    immediate = ImmediateClaims(
        state, control.allocator, control.records.claims, control.deallocator, queues.claims, settings.candidates
    )
    base.wakeups.subscribe(immediate.wake)
    base.wakeups.subscribe_to_usage(immediate.usage_reduced)
    in_process = {**state.drivers, **base.over_api}
    stranding = Stranding(state, control.deallocator, base.recorder, base.clock)
    classes = ClassStatuses(
        client, state.cluster, state.moved, in_process, base.presence, queues.classes, base.clock
    )
    base.wakeups.subscribe(classes.wake)
    return Parts(
        ClaimReconciler(
            client, state, control.deallocator, control.records, immediate, control.unused_deadlines, stranding
        ),
        TemplateReconciler(client, state.cluster, base.recorder),
        publisher,
        control.deallocator,
        reconciler,
        extender,
        Changes(queues, state, base.wakeups, pods, reconciler, control.deallocator, publisher),
        classes,
        control.reservation_pods,
    )


def _control(base: Base, publisher: Publisher) -> _Control:
    client, state = base.client, base.state
    reservation_pods = ReservationPods(client, state, base.recorder, base.settings.reservation_pods)
    records = Records(client, state, base.clock, reservation_pods)
    queue = base.queues.releases
    leftovers = LostNodesData(client, state.cluster, state.ledger, queue, base.clock)
    unused_deadlines = UnusedClaimDeadlines(state.cluster, base.clock)
    releases = Releases(client, state, queue, leftovers, unused_deadlines)
    unseen_users = UnseenUsers(client, state.cluster, state.ledger)
    deallocator = Deallocator(
        state, records, unseen_users, releases, publisher.close, base.wakeups, unused_deadlines
    )
    return _Control(Allocator(state, base.wakeups.wake), records, deallocator, unused_deadlines, reservation_pods)


def _paths(
    base: Base, pods: Pods, control: _Control, sessions: StandaloneSessions
) -> tuple[NativePath, ExtenderPath | None]:
    client, state, settings = base.client, base.state, base.settings
    allocator, records = control.allocator, control.records
    placement = Placement(client, state, allocator, records, control.deallocator, pods, sessions)
    preemption = ClaimPreemption(client, state, pods)
    negotiator = Negotiator(state, pods, sessions, placement, preemption, settings.candidates)
    native = NativePath(state, records, pods, sessions, placement, negotiator)
    scope = Scope(frozenset(settings.scheduler_names), frozenset(settings.managed_resources))
    if not scope:
        return native, None
    posting = Posting(client, base.clock)
    return native, ExtenderPath(state, placement, pods, scope, posting, negotiator, base.metrics)
