"""The controller: caches, queues and doors wired together. Contains no decisions.

At start nothing is decided before every cache is filled and ledger and drivers are rebuilt from it. From then
on every change is turned into keys of what may be affected, and workers look at those again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import PodScheduling
from parley.api.names import API_VERSION
from parley.api.resources import POD_SCHEDULINGS, Resource
from parley.control.allocation import Allocator
from parley.control.claims import Claims
from parley.control.cluster import Cluster
from parley.control.events import Recorder
from parley.control.giving_back import GivingBack
from parley.control.immediate import Immediate
from parley.control.ledger import Ledger, Phase
from parley.control.limits import Limits
from parley.control.measured import MeasuredDriver
from parley.control.metrics import Metrics
from parley.control.mirror import is_mirror, owner_pod
from parley.control.podscheduling import Publisher
from parley.control.records import Records
from parley.control.releasing import Releases
from parley.control.restoring import restore
from parley.control.templates import Templates
from parley.control.tombstones import Tombstones
from parley.kube.client import ApiError, Client, OutcomeUnknown
from parley.kube.clock import Clock, utc
from parley.kube.queue import run_workers
from parley.kube.reflector import RELISTS, Reflector
from parley.negotiation.rounds import DEFAULT_CANDIDATES
from parley.scheduler.changes import Changes, Queues
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
        self._queues = queues = Queues()
        self.ready = asyncio.Event()
        """Set when the first decision may be taken."""
        self.ledger = Ledger(Limits(lambda topic: self._changes.wake(topic)))
        self._recorder = recorder = Recorder(client, clock, settings.instance, metrics)
        self._tombstones = Tombstones(recorder)
        self.cluster = Cluster(client, self._tombstones.heard)
        self._publisher = Publisher(client, queues.publications)
        allocator = Allocator(self.ledger, self._drivers)
        records = Records(client, self.cluster, self.ledger, clock)
        releases = Releases(client, self.cluster, self.ledger, records, queues.releases)
        self._giving_back = giving_back = GivingBack(
            self.cluster,
            self.ledger,
            self._drivers,
            records,
            releases,
            self._publisher.close,
            lambda holding: self._changes.left(holding),
        )
        immediate = Immediate(
            self.cluster,
            self.ledger,
            self._drivers,
            allocator,
            records,
            giving_back,
            queues.claims,
            settings.candidates,
        )
        self._claims = Claims(
            client,
            self.cluster,
            self.ledger,
            self._drivers,
            giving_back,
            records,
            immediate,
        )
        self._templates = Templates(client, self.cluster, recorder)
        doors = Doors(
            client,
            self.cluster,
            self.ledger,
            self._drivers,
            allocator,
            records,
            giving_back,
            Telling(self._publisher, recorder, metrics, settings.pod_schedulings),
            queues.pods,
            clock,
            settings.candidates,
            Scope(frozenset(settings.scheduler_names), frozenset(settings.managed_resources)),
            metrics,
        )
        self._door, self.extender = doors.native, doors.extender
        self._changes = Changes(
            queues,
            self.cluster,
            self.ledger,
            self._drivers,
            doors,
            immediate,
            giving_back,
            releases,
            self._publisher,
        )
        self._expose(metrics)
        for driver in self._drivers.values():
            for resource in driver.driver.watches:
                self._observe(driver, resource)

    @property
    def caches(self) -> Sequence[Reflector[Any]]:
        """All copies of the API's objects, those of asynchronous drivers included."""
        return [*self.cluster.caches, *(cache for driver in self._asynchronous for cache in driver.caches)]

    def _expose(self, metrics: Metrics) -> None:
        metrics.read_ledger(self.ledger)
        metrics.read_caches(self.cluster.caches)
        metrics.read_queues(
            {
                "pods": self._queues.pods,
                "claims": self._queues.claims,
                "templates": self._queues.templates,
                "releases": self._queues.releases,
                "podschedulings": self._queues.publications,
            }
        )

    def _observe(self, driver: EmbeddedDriver, resource: Resource[Any]) -> None:
        def changed(old: Any | None, new: Any | None) -> None:
            if driver.observe(old, new):
                self._changes.wake(("driver", driver.name))

        self.cluster.observe(resource, changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.cluster.run())
            tasks.create_task(self._tombstones.run())
            await self.cluster.synced()
            await self._restore()
            for queue, handler, count in (
                (self._queues.pods, self._door.sync, self._settings.pod_workers),
                (self._queues.claims, self._claims.sync, self._settings.claim_workers),
                (self._queues.templates, self._templates.sync, self._settings.claim_workers),
            ):
                tasks.create_task(run_workers(queue, handler, count))
            tasks.create_task(
                run_workers(self._queues.releases, self._giving_back.follow, self._settings.claim_workers)
            )
            tasks.create_task(
                run_workers(self._queues.publications, self._publisher.publish, self._settings.publish_workers)
            )
            for driver in self._asynchronous:
                tasks.create_task(driver.run())
            for name, embedded in self._drivers.items():
                tasks.create_task(embedded.follow(partial(self._door.wake, ("driver", name))))
            tasks.create_task(self._tell_not_taken_over())
            self.ready.set()

    async def _tell_not_taken_over(self) -> None:
        """An event on each claim of which its driver could not take over what it holds."""
        for driver in self._drivers.values():
            for uid, lost in list(driver.not_taken_over.items()):
                if (holding := self.ledger.get(uid)) is not None:
                    version = API_VERSION if holding.named else "resource.k8s.io/v1"
                    about = ("ResourceClaim", version, holding.namespace, holding.claim, uid)
                    await self._recorder.warn(*about, reasons.DRIVER_FAILED, lost.message)

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
        self.cluster.listen(self._changes)
        log.info("restored", holdings=len(self.ledger), unconfirmed=len(self._door.unconfirmed))
        for holding in list(self.ledger):
            self._changes.look_at(holding)
            if not holding.pods:
                self._queues.claims.add((holding.namespace, holding.claim))
            if holding.owed or holding.phase is Phase.RELEASING:
                self._queues.releases.add(holding.uid)
        for pod in sorted(self.cluster.pods(), key=_arrival):
            self._changes.enqueue(pod)
        for claim in self.cluster.claims():
            self._queues.claims.add((claim.metadata.namespace, claim.metadata.name))
        for template in self.cluster.templates():
            self._queues.templates.add((template.metadata.namespace, template.metadata.name))
        for mirror in self.cluster.mirrors():
            if is_mirror(mirror) and owner_pod(mirror) is None:
                self._queues.claims.add((mirror.metadata.namespace, mirror.metadata.name))

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


def _arrival(pod: Pod) -> tuple[str, str, str]:
    """Who came first is served first, also by a new leader: by creation (to the second), then by name."""
    return pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name
