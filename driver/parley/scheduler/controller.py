"""The controller: caches, queues and doors wired together. Contains no decisions.

At start nothing is decided before every cache is filled and ledger and drivers are rebuilt from it. From then
on every change is turned into keys of what may be affected, and workers look at those again.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from parley.api.builtin import BuiltinClaim, BuiltinTemplate, Node, Pod, ResourceSlice
from parley.api.models import PodScheduling, ResourceClaim, ResourceClaimTemplate, ResourceClass
from parley.api.resources import POD_SCHEDULINGS, RESOURCE_SLICES, Resource
from parley.control.allocation import Allocator
from parley.control.claims import Claims
from parley.control.cluster import Cluster, Key, done, over, reference
from parley.control.events import Recorder
from parley.control.giving_back import GivingBack
from parley.control.immediate import Immediate
from parley.control.ledger import Holding, Ledger
from parley.control.limits import Limits
from parley.control.measured import MeasuredDriver
from parley.control.metrics import Metrics
from parley.control.mirror import is_mirror, owner_pod
from parley.control.podclaims import NODES, Topic
from parley.control.podscheduling import Publisher
from parley.control.records import Records
from parley.control.releasing import Releases, out_of_service
from parley.control.restoring import adopt_record, count_again, count_foreign, restore
from parley.control.standin import driver_of_record, is_stand_in
from parley.control.templates import Templates
from parley.kube.client import ApiError, Client, OutcomeUnknown
from parley.kube.clock import Clock, utc
from parley.kube.queue import WorkQueue, run_workers
from parley.kube.reflector import RELISTS
from parley.negotiation.rounds import DEFAULT_CANDIDATES
from parley.scheduler.doors import Doors
from parley.scheduler.extender.scope import Scope
from parley.scheduler.telling import PodSchedulings, Telling
from parley.sdk import Driver, PodReference
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.standalone import StandaloneDriver

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Settings:
    """What an operator can choose.

    `candidates` is how many nodes a round asks about at most (1 to 128), the workers how many objects of a kind
    are worked on at once, `instance` the name in events. Pods that name one of `scheduler_names`, or request one
    of `managed_resources`, are negotiated for by the extender door, which is there if any are given.
    `pod_schedulings`: whether there is a PodScheduling for every pod, or only for those that had to wait.
    """

    candidates: int = DEFAULT_CANDIDATES
    pod_workers: int = 16
    claim_workers: int = 4
    publish_workers: int = 4
    instance: str = "parley-controller"
    scheduler_names: tuple[str, ...] = ()
    managed_resources: tuple[str, ...] = ()
    pod_schedulings: PodSchedulings = "Always"


class Controller:
    """Runs the negotiation for a cluster, with drivers of its own. One at a time: see `parley.kube.lease`.

    Its asynchronous drivers are asked through the API, like those that run elsewhere.
    """

    def __init__(
        self,
        client: Client,
        drivers: Sequence[Driver[Any, Any]],
        settings: Settings = Settings(),
        clock: Clock = utc,
        metrics: Metrics | None = None,
    ) -> None:
        self.metrics = metrics = metrics or Metrics()
        self._client = client
        self._settings = settings
        self._drivers: dict[str, EmbeddedDriver] = {
            driver.name: MeasuredDriver(driver, metrics) for driver in drivers if not driver.asynchronous
        }
        self._asynchronous = [StandaloneDriver(client, driver, clock) for driver in drivers if driver.asynchronous]
        self._pods: WorkQueue[Key] = WorkQueue(fields=_named("pod"))
        self._claim_keys: WorkQueue[Key] = WorkQueue(fields=_named("claim"))
        self._template_keys: WorkQueue[Key] = WorkQueue(fields=_named("template"))
        self._publications: WorkQueue[PodReference] = WorkQueue(
            fields=lambda pod: {"pod": f"{pod.namespace}/{pod.name}"}
        )
        self._running = False
        self.ready = asyncio.Event()
        """Set when the first decision may be taken."""
        self.ledger = Ledger(Limits(lambda topic: self._wake(topic)))
        self.cluster = Cluster(client, self)
        recorder = Recorder(client, clock, settings.instance, metrics)
        self._publisher = Publisher(client, self._publications)
        allocator = Allocator(self.ledger, self._drivers)
        records = Records(client, self.cluster, self.ledger, clock)
        self._releases = Releases(client, self.cluster, self.ledger, records, clock)
        self._giving_back = GivingBack(
            self.cluster, self.ledger, self._drivers, records, self._releases, self._publisher.close, self._freed
        )
        self._immediate = Immediate(
            self.cluster,
            self.ledger,
            self._drivers,
            allocator,
            records,
            self._giving_back,
            self._claim_keys,
            settings.candidates,
        )
        self._claims = Claims(
            client,
            self.cluster,
            self.ledger,
            self._drivers,
            self._giving_back,
            self._releases,
            records,
            self._immediate,
        )
        self._templates = Templates(client, self.cluster, recorder)
        doors = Doors(
            client,
            self.cluster,
            self.ledger,
            self._drivers,
            allocator,
            records,
            self._giving_back,
            Telling(self._publisher, recorder, metrics, settings.pod_schedulings),
            self._pods,
            clock,
            settings.candidates,
            Scope(frozenset(settings.scheduler_names), frozenset(settings.managed_resources)),
            metrics,
        )
        self._door, self.extender = doors.native, doors.extender
        self.cluster.observe(RESOURCE_SLICES, self._slice_changed)
        self._expose(metrics)
        for driver in self._drivers.values():
            for resource in driver.driver.watches:
                self._observe(driver, resource)

    def _expose(self, metrics: Metrics) -> None:
        metrics.read_ledger(self.ledger)
        metrics.read_caches(self.cluster.caches)
        metrics.read_queues(
            {
                "pods": self._pods,
                "claims": self._claim_keys,
                "templates": self._template_keys,
                "podschedulings": self._publications,
            }
        )

    def _observe(self, driver: EmbeddedDriver, resource: Resource[Any]) -> None:
        def changed(old: Any | None, new: Any | None) -> None:
            if driver.driver.observe(old, new):
                self._wake(("driver", driver.name))

        self.cluster.observe(resource, changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.cluster.run())
            await self.cluster.synced()
            await self._restore()
            for queue, handler, count in (
                (self._pods, self._door.sync, self._settings.pod_workers),
                (self._claim_keys, self._claims.sync, self._settings.claim_workers),
                (self._template_keys, self._templates.sync, self._settings.claim_workers),
            ):
                tasks.create_task(run_workers(queue, handler, count))
            tasks.create_task(
                run_workers(self._publications, self._publisher.publish, self._settings.publish_workers)
            )
            for driver in self._asynchronous:
                tasks.create_task(driver.run())
            for name, embedded in self._drivers.items():
                tasks.create_task(embedded.driver.follow(partial(self._door.wake, ("driver", name))))
            self.ready.set()

    async def _restore(self) -> None:
        """Rebuild what is kept in memory, then look at everything once."""
        published = await self._published()
        # No await from here until changes are listened to: one in between would be lost.
        self._door.unconfirmed = restore(self.cluster, self.ledger, self._drivers)
        self._door.resume()
        for scheduling in published:
            for owner in scheduling.metadata.owner_references:
                if not scheduling.status.waiting_for:
                    meta = scheduling.metadata
                    self._publisher.exists(PodReference(meta.namespace, meta.name, owner.uid))
        self._running = True
        log.info("restored", holdings=len(self.ledger), unconfirmed=len(self._door.unconfirmed))
        for holding in list(self.ledger):
            self._look_at(holding)
            if not holding.pods:
                self._claim_keys.add((holding.namespace, holding.claim))
        for pod in sorted(self.cluster.pods(), key=_arrival):
            self._enqueue_pod(pod)
        for claim in self.cluster.claims():
            self._claim_keys.add((claim.metadata.namespace, claim.metadata.name))
        for template in self.cluster.templates():
            self._template_keys.add((template.metadata.namespace, template.metadata.name))
        for mirror in self.cluster.mirrors():
            if is_mirror(mirror) and owner_pod(mirror) is None:
                self._claim_keys.add((mirror.metadata.namespace, mirror.metadata.name))

    async def _published(self) -> Sequence[PodScheduling]:
        """What earlier runs wrote. A server that is busy or just starting is asked again, like by a reflector."""
        failures = 0
        while True:
            try:
                return (await self._client.list(POD_SCHEDULINGS)).items
            except (ApiError, OutcomeUnknown) as error:
                failures += 1
                log.warning("PodSchedulings are not listed yet", failures=failures, error=str(error))
                await asyncio.sleep(RELISTS.delay(failures))

    def _look_at(self, holding: Holding) -> None:
        for user in holding.pods.values():
            self._pods.add((user.namespace, user.name))

    def _enqueue_pod(self, pod: Pod) -> None:
        if pod.spec.resource_claims:
            self._pods.add((pod.metadata.namespace, pod.metadata.name))

    def _wake(self, topic: Topic) -> None:
        """Something changed: look again at the pods and immediate claims that it may help."""
        self._door.wake(topic)
        self._immediate.wake(topic)

    def _freed(self, holding: Holding) -> None:
        self._wake(("driver", holding.driver))
        if holding.named:
            self._wake(("claim", holding.namespace, holding.claim))
            self._claim_keys.add((holding.namespace, holding.claim))

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if not self._running:
            return
        if new is not None:
            self._door.unconfirmed.discard(new.metadata.uid)
            if old is None or self._concerns_us(old, new):
                self._enqueue_pod(new)
            if over(new):
                self._door.pod_ended(new.metadata.uid)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            ended = done(old) or not old.spec.node_name
            self._door.pod_gone(reference(old), running_on="" if ended else old.spec.node_name)
            self._enqueue_pod(old)
        if old is not None and old.spec.node_name and not done(old) and (new is None or done(new)):
            self._door.wake(NODES)

    def _concerns_us(self, old: Pod, new: Pod) -> bool:
        """Whether anything changed that a decision depends on; conditions do not count, nor a name in the status
        of a claim that was known before: each look may ask drivers about every node."""
        return (
            old.metadata.uid != new.metadata.uid
            or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            or old.spec != new.spec
            or old.status.phase != new.status.phase
            or old.status.nominated_node_name != new.status.nominated_node_name
            or any(
                self.cluster.generated(old, e.name) != self.cluster.generated(new, e.name)
                for e in new.spec.resource_claims
            )
        )

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        if not self._running or (old is not None and new is not None and not _differs(old, new)):
            return
        self._wake(NODES)
        if old is not None and out_of_service(new):
            for holding in self.ledger:
                if old.metadata.name in holding.owed:
                    self._claim_keys.add((holding.namespace, holding.claim))

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A node plugin may have come or gone."""
        if self._running and (old is None or new is None):
            self._wake(NODES)

    def mirror_changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        claim = new or old
        if not self._running or claim is None:
            return
        key = (claim.metadata.namespace, claim.metadata.name)
        if not is_mirror(claim):
            self._foreign_changed(old, new)
            self._claim_keys.add(key)
            self._wake(("claim", *key))
        elif (owner := owner_pod(claim)) is not None:
            self._pods.add((owner.namespace, owner.name))
        else:
            self._claim_keys.add(key)
            self._look_at_users(key)

    def _look_at_users(self, key: Key) -> None:
        """Pods that use or wait for the named claim."""
        if (holding := self.ledger.of_claim(*key)) is not None:
            self._look_at(holding)
        if (expecting := self.ledger.expected_for(*key)) is not None:
            self._pods.add((expecting.namespace, expecting.name))
        claim = self.cluster.claim(key)
        if claim is not None and is_stand_in(claim):
            for owner in claim.metadata.owner_references:
                self._pods.add((claim.metadata.namespace, owner.name))
        self._wake(("claim", *key))

    def _foreign_changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        if new is not None and count_foreign(self._drivers, new):
            return
        gone = old.status.allocation if old is not None else None
        for name in {result.driver for result in gone.devices.results} if gone else ():
            if old is not None and name in self._drivers:
                self._drivers[name].driver.forget(old.metadata.uid)
                self._wake(("driver", name))

    def template_mirror_changed(self, old: BuiltinTemplate | None, new: BuiltinTemplate | None) -> None:
        if self._running and (mirror := new or old) is not None:
            key = (mirror.metadata.namespace, mirror.metadata.name)
            self._template_keys.add(key)
            self._wake(("template", *key))

    def class_changed(self, old: ResourceClass | None, new: ResourceClass | None) -> None:
        if not self._running or (class_ := new or old) is None:
            return
        if old is None:
            count_again(self.cluster, self.ledger, self._drivers, class_.metadata.name)
        self._wake(("class", class_.metadata.name))
        for claim in self.cluster.claims():
            if claim.spec.resource_class_name == class_.metadata.name:
                self._claim_keys.add((claim.metadata.namespace, claim.metadata.name))

    def claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if self._running and (claim := new or old) is not None:
            key = (claim.metadata.namespace, claim.metadata.name)
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self._releases.gone(old)
            self._giving_back.record_changed(claim, gone=new is None)
            if new is not None and driver_of_record(new) not in self._drivers:
                adopt_record(self.cluster, self.ledger, self._drivers, new)
            self._claim_keys.add(key)
            self._look_at_users(key)

    def scheduling_changed(self, old: PodScheduling | None, new: PodScheduling | None) -> None:
        if not self._running or (scheduling := new or old) is None:
            return
        meta = scheduling.metadata
        self._pods.add((meta.namespace, meta.name))
        if new is None:
            for owner in meta.owner_references:
                self._publisher.lost(PodReference(meta.namespace, meta.name, owner.uid))

    def template_changed(self, old: ResourceClaimTemplate | None, new: ResourceClaimTemplate | None) -> None:
        if self._running and (template := new or old) is not None:
            key = (template.metadata.namespace, template.metadata.name)
            self._template_keys.add(key)
            self._wake(("template", *key))


def _named(kind: str) -> Callable[[Key], Mapping[str, object]]:
    """How a key is named in a log entry: {"pod": "team/a"}."""
    return lambda key: {kind: "/".join(key)}


def _arrival(pod: Pod) -> tuple[str, str, str]:
    """Who came first is served first, also by a new leader: by creation (to the second), then by name."""
    return pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name


def _differs(old: Node, new: Node) -> bool:
    """Whether anything changed that decides about candidates; heartbeats do not count."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
    )
