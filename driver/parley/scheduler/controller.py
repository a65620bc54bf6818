"""The controller: informers, work queues and workers. Contains no decisions.

It makes no decision before all caches have synced and the ledger and the drivers are rebuilt from them.
From then on every change becomes the keys of the objects that it may affect, and workers reconcile these.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Any

import structlog

from parley.api import reasons
from parley.api.builtin import BuiltinClaim
from parley.api.models import ResourceClaim
from parley.api.names import API_VERSION
from parley.api.resources import POD_SCHEDULINGS, Resource
from parley.control.holding import Phase
from parley.control.immediate import within_limits
from parley.control.objects.mirror import is_mirror, is_template_mirror, owner_pod
from parley.control.objects.pod import arrival
from parley.control.restoring import count_begun, count_unbound, restore
from parley.control.takeover import fence_acceptances, fence_former_leaders, retry_while_unavailable
from parley.control.telemetry.measured import MeasuredDriver
from parley.control.telemetry.metrics import Metrics
from parley.kube.client import Client
from parley.kube.clock import Clock, utc
from parley.kube.informer import Informer
from parley.kube.queue import run_workers
from parley.scheduler.extender.endpoint import LeaderEndpoint
from parley.scheduler.settings import DEFAULTS, ControllerSettings
from parley.scheduler.wiring import base, parts
from parley.sdk import Driver, PodReference
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.reference_reader import ReferenceReader
from parley.sdk.standalone import StandaloneDriver

log = structlog.get_logger(__name__)


class Controller:
    """Runs the negotiation for a cluster, with the given drivers in its process. Only the leader runs, see
    `parley.kube.lease`. Asynchronous drivers are asked through the API, like those that run in other processes."""

    def __init__(
        self,
        client: Client,
        drivers: Sequence[Driver[Any, Any]],
        settings: ControllerSettings = DEFAULTS,
        clock: Clock = utc,
        metrics: Metrics | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self._client = client
        self._settings = settings
        self._asynchronous = [StandaloneDriver(client, driver, clock) for driver in drivers if driver.asynchronous]
        self.references = ReferenceReader(client)
        """Reads the objects that `parametersRef` names."""
        embedded: dict[str, EmbeddedDriver] = {
            driver.name: MeasuredDriver(driver, self.metrics, self.references)
            for driver in drivers
            if not driver.asynchronous
        }
        over_api = {one.driver.name: one.embedded for one in self._asynchronous}
        self._base = base(client, embedded, over_api, settings, clock, self.metrics)
        self.references.subscribe(self._base.wakeups.wake)
        self._parts = parts(self._base)
        self.ready = asyncio.Event()
        """Set when the state is restored and the workers have started."""
        self.state = self._base.state
        self.cluster, self.ledger = self.state.cluster, self.state.ledger
        self.extender = self._parts.extender
        self.references.subscribe(self._parts.changes.parameters_read)
        self._expose()
        for driver in embedded.values():
            for resource in driver.driver.watches:
                self._observe(driver, resource)

    @property
    def caches(self) -> Sequence[Informer[Any]]:
        """All informers, those of asynchronous drivers included."""
        return [*self.cluster.caches, *(cache for driver in self._asynchronous for cache in driver.caches)]

    def _expose(self) -> None:
        queues = self._base.queues
        self.metrics.read_ledger(self.ledger)
        self.metrics.read_caches(self.cluster.caches)
        self.metrics.read_queues(
            {
                "pods": queues.pods,
                "claims": queues.claims,
                "templates": queues.templates,
                "releases": queues.releases,
                "podschedulings": queues.publications,
                "classes": queues.classes,
                "reservations": queues.reservations,
            }
        )

    def _observe(self, driver: EmbeddedDriver, resource: Resource[Any]) -> None:
        def changed(old: Any | None, new: Any | None) -> None:
            if nodes := driver.observe(old, new):
                self._base.wakeups.wake(("driver", driver.name), None if nodes is True else nodes)

        self.cluster.informers.observe(resource, changed)

    async def run(self) -> None:
        """Restore the state, then work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.cluster.informers.run())
            tasks.create_task(self._base.tombstones.run())
            await self.cluster.informers.synced()
            await self._restore()
            self._work(tasks)
            for driver in self._asynchronous:
                tasks.create_task(driver.run())
            for name, embedded in self._base.state.drivers.items():
                changed = partial(self._base.wakeups.wake, ("driver", name))
                tasks.create_task(embedded.follow(changed))
                tasks.create_task(embedded.retry_undos(changed))
            tasks.create_task(self._report_not_restored())
            self.ready.set()

    def _work(self, tasks: asyncio.TaskGroup) -> None:
        """Start the workers."""
        queues, parts_, settings = self._base.queues, self._parts, self._settings
        for queue, handler, count in (
            (queues.pods, parts_.reconciler.sync, settings.pod_workers),
            (queues.claims, parts_.claims.sync, settings.claim_workers),
            (queues.templates, parts_.templates.sync, settings.claim_workers),
        ):
            tasks.create_task(run_workers(queue, handler, count))
        tasks.create_task(self.references.run())
        tasks.create_task(run_workers(queues.releases, parts_.deallocator.sync, settings.claim_workers))
        tasks.create_task(run_workers(queues.classes, parts_.classes.sync, 1))
        tasks.create_task(run_workers(queues.reservations, parts_.reservation_pods.sync, settings.claim_workers))
        tasks.create_task(parts_.classes.run())
        if settings.endpoint is not None:
            tasks.create_task(LeaderEndpoint(self._client, settings.namespace, settings.endpoint).run())
        publish = self._parts.publisher.publish
        tasks.create_task(run_workers(queues.publications, publish, settings.publish_workers))

    async def _report_not_restored(self) -> None:
        """Write an event on each claim whose driver could not restore what the claim holds."""
        for driver in self._base.state.drivers.values():
            for uid, message in driver.unrestored.messages().items():
                if (holding := self.ledger.get(uid)) is not None:
                    version = API_VERSION if holding.named else "resource.k8s.io/v1"
                    about = ("ResourceClaim", version, holding.namespace, holding.claim, uid)
                    await self._base.recorder.warn(*about, reasons.DRIVER_FAILED, message)

    def rebuild(
        self,
        mirrors: Mapping[str, BuiltinClaim] = MappingProxyType({}),
        claims: Mapping[str, ResourceClaim] = MappingProxyType({}),
    ) -> Set[str]:
        """Rebuild the state in memory from the caches. Returns the UIDs of users that the pod cache does not have.

        `mirrors` and `claims` are newer than those in the caches, by UID.
        """
        unconfirmed = restore(self._base.state, mirrors)
        count_unbound(self._base.state)
        self._parts.reconciler.resume(unconfirmed)
        count_begun(self._base.state)
        self._parts.claims.resume(claims)
        return unconfirmed

    async def _restore(self) -> None:
        """Rebuild the state in memory from the API, then enqueue everything once."""
        changed = await fence_former_leaders(self._client, self.cluster)
        waiting = within_limits(self._base.state, accepted=False)
        touched = await fence_acceptances(self._client, self.cluster, waiting)
        published = await retry_while_unavailable(
            "PodSchedulings are not listed yet", lambda: self._client.list(POD_SCHEDULINGS)
        )
        # No await from here until `listen`: an event in between would be lost.
        unconfirmed = self.rebuild(changed, touched)
        for scheduling in published.items:
            for owner in scheduling.metadata.owner_references:
                meta = scheduling.metadata
                user = PodReference(meta.namespace, meta.name, owner.uid)
                if scheduling.status.waiting_for:
                    self._parts.publisher.adopt_waiting(user)
                else:
                    self._parts.publisher.adopt(user, asked=bool(scheduling.spec.claims))
        self.cluster.listen(self._parts.changes)
        log.info("restored", holdings=len(self.ledger), unconfirmed=len(unconfirmed))
        for holding in list(self.ledger):
            self._parts.changes.enqueue_users(holding)
            if not holding.pods:
                self._base.queues.claims.add((holding.namespace, holding.claim))
            if holding.phase is not Phase.HELD or holding.owed:
                self._base.queues.releases.add(holding.uid)
        for release in self.cluster.releases():
            self._base.queues.releases.add(release.spec.holding_uid)
        for pod in sorted(self.cluster.pods(), key=arrival):
            self._parts.changes.enqueue(pod)
        for claim in self.cluster.claims():
            self._base.queues.claims.add((claim.metadata.namespace, claim.metadata.name))
        for template in self.cluster.templates():
            self._base.queues.templates.add((template.metadata.namespace, template.metadata.name))
        for copy in filter(is_template_mirror, self.cluster.template_mirrors()):
            self._base.queues.templates.add((copy.metadata.namespace, copy.metadata.name))
        for mirror in self.cluster.mirrors():
            if is_mirror(mirror) and owner_pod(mirror) is None:
                self._base.queues.claims.add((mirror.metadata.namespace, mirror.metadata.name))
