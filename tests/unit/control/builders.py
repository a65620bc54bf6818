"""Objects as the informers hold them, with only what a test is about left to say, and a small world around them.

A `World` has an in-memory API server, the caches over it, an empty ledger and real drivers. Nothing acts by
itself: a test plays the users, Kubernetes' own controllers, and whoever calls the part that it is about.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from tests.support.faults import FaultClient, Hook, NumberedCall, nothing

from parley.api.builtin import BuiltinClaim, Node, Pod
from parley.api.models import ResourceClaim, ResourceClaimTemplate, ResourceClass
from parley.api.names import POD_CLAIM_NAME_ANNOTATION
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, EVENTS, NODES, PODS, TEMPLATES, Resource
from parley.control.allocation import Allocator
from parley.control.caches.cluster import ClusterCache
from parley.control.claims.podclaims import PodClaim
from parley.control.claims.reconciler import ClaimReconciler
from parley.control.claims.stranding import Stranding
from parley.control.decision.sight import pods_are_seen
from parley.control.holding import Holding, Phase
from parley.control.immediate import ImmediateClaims
from parley.control.ledger import Ledger
from parley.control.limits import Limits
from parley.control.objects.class_request import ClassRequest, claim_spec
from parley.control.objects.mirror import claim_mirror
from parley.control.publishing.events import Recorder
from parley.control.records import Records
from parley.control.release.deallocation import Deallocator
from parley.control.release.leftovers import LostNodesData
from parley.control.release.releases import Releases
from parley.control.release.unseen_users import UnseenUsers
from parley.control.release.unused_claims import UnusedClaimDeadlines
from parley.control.reservation_pods import ReservationPods, ReservationPodSettings
from parley.control.state import State
from parley.control.wakeups import Wakeups
from parley.drivers.tokens import TokensDriver
from parley.kube.cache import Key
from parley.kube.informer import OnChange
from parley.kube.memory import MemoryServer
from parley.kube.queue import WorkQueue
from parley.negotiation.waiting import Topic
from parley.sdk import Allocation, Driver, PodReference
from parley.sdk.embedded import EmbeddedDriver
from parley.simulate.cluster import loop_clock
from parley.simulate.virtual_time import run

T = TypeVar("T")

NAMESPACE = "team"
TOKENS = TokensDriver.name
NOW = "2026-01-01T00:00:00Z"


def read(resource: Resource[T], manifest: Mapping[str, Any]) -> T:
    """The object as an informer would have decoded it."""
    return resource.decode(orjson.dumps(manifest))


def metadata(name: str, **more: Any) -> dict[str, Any]:
    """In the tests' namespace; the UID follows from the name."""
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", **more}


def user(name: str) -> PodReference:
    """The pod of that name."""
    return PodReference(NAMESPACE, name, f"uid-{name}")


def pod_manifest(name: str, *, claims: Sequence[str] = (), templates: Sequence[str] = (), **spec: Any) -> Any:
    """A pod that uses named claims and templates; each entry has the name of what it names."""
    entries: list[dict[str, str]] = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    entries += [{"name": template, "resourceClaimTemplateName": template} for template in templates]
    containers = [{"name": "main", "image": "none"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, "resourceClaims": entries, **spec}}


def a_pod(name: str = "p", *, node: str = "", phase: str = "Pending", deleted: bool = False, **spec: Any) -> Pod:
    """A pod as the cache has it, bound to the node if one is given."""
    manifest = pod_manifest(name, nodeName=node, **spec)
    meta = metadata(name, **({"deletionTimestamp": NOW} if deleted else {}))
    return read(PODS, {**manifest, "metadata": meta, "status": {"phase": phase}})


def a_class(name: str = "licence", driver: str = TOKENS, *, pool: int = 4, **fields: Any) -> ResourceClass:
    """A class as the cache has it: a pool of so many tokens."""
    return read(
        CLASSES, {"metadata": {"name": name, "uid": f"uid-{name}"}, **class_fields(driver, pool), **fields}
    )


def class_fields(driver: str = TOKENS, pool: int = 4) -> dict[str, Any]:
    """What a class of tokens says."""
    return {"driverName": driver, "parameters": {"pool": pool}}


def a_claim(
    name: str = "c",
    class_name: str = "licence",
    *,
    meta: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    **spec: Any,
) -> ResourceClaim:
    """A claim of parley.dev as the cache has it."""
    asked = {"resourceClassName": class_name, "parameters": dict(parameters or {}), **spec}
    return read(CLAIMS, {"metadata": metadata(name, **(meta or {})), "spec": asked, "status": dict(status or {})})


def mirror_of(
    claim: ResourceClaim, *, shareable: bool = False, status: Any = None, deleted: bool = False
) -> BuiltinClaim:
    """The built-in claim that stands for a named claim, as the cache has it."""
    body = claim_mirror(claim, shareable=shareable)
    body["metadata"] |= {"uid": f"uid-mirror-of-{claim.metadata.name}", "resourceVersion": "1"}
    if deleted:
        body["metadata"]["deletionTimestamp"] = NOW
    return read(BUILTIN_CLAIMS, {**body, "status": status or {}})


def generated_for(
    pod: Pod, entry: str = "licence", *, class_name: str = "licence", status: Any = None, **meta: Any
) -> BuiltinClaim:
    """The built-in claim that Kubernetes generated for the pod's entry, as the cache has it."""
    own = metadata(f"{pod.metadata.name}-{entry}", resourceVersion="1", **generated_metadata(pod, entry), **meta)
    return read(BUILTIN_CLAIMS, {"metadata": own, "spec": generated_spec(class_name), "status": status or {}})


def generated_metadata(pod: Pod, entry: str) -> dict[str, Any]:
    """What the claim controller writes into a claim that it generates."""
    meta = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True}
    return {"annotations": {POD_CLAIM_NAME_ANNOTATION: entry}, "ownerReferences": [owner]}


def generated_spec(class_name: str = "licence", **parameters: Any) -> dict[str, Any]:
    """As the mirror of a template passes it on."""
    asked = a_claim("any", class_name, parameters=parameters).spec
    return claim_spec(asked, shareable=False)


def pending(
    name: str, class_: ResourceClass | None = None, *, standalone: bool = False, **parameters: Any
) -> PodClaim:
    """A named claim of a pod, with nothing in its way: entry and claim have this name."""
    class_ = class_ or a_class()
    claim = a_claim(name, class_.metadata.name, parameters=parameters)
    asked = ClassRequest(class_.metadata.name, parameters)
    return PodClaim(name, name, mirror_of(claim), claim, class_=class_, class_request=asked, standalone=standalone)


def a_holding(claim: str = "c", *pods: str, node: str = "node-1", **fields: Any) -> Holding:
    """What a named claim of that name holds for these pods."""
    given: dict[str, Any] = {
        "uid": f"uid-{claim}",
        "namespace": NAMESPACE,
        "claim": claim,
        "entry": claim,
        "named": True,
        "driver": TOKENS,
        "node": node,
        "allocation": Allocation(data={"pool": "licence", "node": node, "count": 1}),
        "pods": {user(pod).uid: user(pod) for pod in pods},
    }
    return Holding(**{**given, **fields})


class World:
    """A cluster that a test fills. `before` and `after` are called around the controller's own writes."""

    def __init__(self, *drivers: Driver[Any, Any]) -> None:
        self.clock = loop_clock()
        self.server = MemoryServer(clock=self.clock)
        self.admin = self.server.client("admin")
        self.before: Hook = nothing
        self.after: Hook = nothing
        self.client = FaultClient(
            self.server.client(), before=lambda call: self.before(call), after=lambda call: self.after(call)
        )
        self.wakeups = Wakeups()
        self.woken: list[Topic] = []
        self.wakeups.subscribe(self._wake)
        embedded = {driver.name: EmbeddedDriver(driver) for driver in drivers or (TokensDriver(),)}
        reservations = ReservationPodSettings()
        cluster = ClusterCache(
            self.client, pods_seen=pods_are_seen(embedded), reservations_in=reservations.namespace
        )
        for driver in embedded.values():
            for resource in driver.driver.watches:
                cluster.informers.observe(resource, _telling(driver))
        self.state = State(cluster, Ledger(Limits(self.wakeups.wake)), embedded)
        self.recorder = Recorder(self.client, self.clock, "parley")
        reservation_pods = ReservationPods(self.client, self.state, self.recorder, reservations)
        self.records = Records(self.client, self.state, self.clock, reservation_pods)

    def _wake(self, topic: Topic, _nodes: Collection[str] | None) -> None:
        self.woken.append(topic)

    @property
    def cluster(self) -> ClusterCache:
        """The caches."""
        return self.state.cluster

    @property
    def ledger(self) -> Ledger:
        """What is allocated."""
        return self.state.ledger

    @property
    def writes(self) -> list[NumberedCall]:
        """What the controller asked to be written so far."""
        return [call for call in self.client.calls if call.writes]

    async def seen(self) -> None:
        """Let the caches show everything that was written."""
        await asyncio.sleep(1)

    async def put(self, resource: Resource[T], manifest: Mapping[str, Any]) -> T:
        """Somebody creates an object, and its owner writes its status; the caches show it then."""
        namespace = NAMESPACE if resource.namespaced else None
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        made = await self.admin.create(resource, {**kind, **manifest}, namespace)
        if status := manifest.get("status"):
            made = await self.patch_status(resource, manifest["metadata"]["name"], status)
        await self.seen()
        return made

    async def patch_status(self, resource: Resource[T], name: str, status: Any) -> T:
        """Somebody else writes the object's status."""
        namespace = NAMESPACE if resource.namespaced else None
        written = await self.admin.patch(resource, name, {"status": status}, namespace, subresource="status")
        await self.seen()
        return written

    async def delete(self, resource: Resource[Any], name: str) -> None:
        """A user deletes the object."""
        await self.admin.delete(resource, name, NAMESPACE if resource.namespaced else None)
        await self.seen()

    async def node(self, name: str, **spec: Any) -> Node:
        status = {"allocatable": {"cpu": "8", "pods": "110"}}
        labels = {"kubernetes.io/hostname": name}
        return await self.put(
            NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}
        )

    async def class_(self, name: str = "licence", driver: str = TOKENS, *, pool: int = 4, **more: Any) -> None:
        await self.put(CLASSES, {"metadata": {"name": name}, **class_fields(driver, pool), **more})

    async def claim(
        self, name: str = "c", class_name: str = "licence", mode: str = "", **parameters: Any
    ) -> ResourceClaim:
        spec = {"resourceClassName": class_name, "parameters": parameters}
        return await self.put(
            CLAIMS, {"metadata": {"name": name}, "spec": {**spec, "allocationMode": mode} if mode else spec}
        )

    async def mirror(self, claim: ResourceClaim, *, shareable: bool = False) -> BuiltinClaim:
        """The mirror of a named claim, as `claims` makes it."""
        return await self.put(BUILTIN_CLAIMS, claim_mirror(claim, shareable=shareable))

    async def template(
        self, name: str = "licence", class_name: str = "licence", **parameters: Any
    ) -> ResourceClaimTemplate:
        spec = {"resourceClassName": class_name, "parameters": parameters}
        return await self.put(TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": spec}})

    async def pod(self, name: str = "p", **spec: Any) -> Pod:
        return await self.put(PODS, pod_manifest(name, **spec))

    async def generated(
        self, pod: Pod, entry: str = "licence", class_name: str = "licence", **parameters: Any
    ) -> BuiltinClaim:
        """The claim controller generates the claim for the pod's entry."""
        meta = {"name": f"{pod.metadata.name}-{entry}", **generated_metadata(pod, entry)}
        return await self.put(BUILTIN_CLAIMS, {"metadata": meta, "spec": generated_spec(class_name, **parameters)})

    async def the_claim(self, name: str = "c") -> ResourceClaim:
        """As the API server has it now."""
        return await self.admin.get(CLAIMS, name, NAMESPACE)

    async def the_mirror(self, name: str = "c") -> BuiltinClaim:
        """As the API server has it now."""
        return await self.admin.get(BUILTIN_CLAIMS, name, NAMESPACE)

    async def events(self) -> list[tuple[str, str]]:
        """Reason and note of each event, in the order in which they were written."""
        items = (await self.admin.list(EVENTS, NAMESPACE)).items
        ordered = sorted(items, key=lambda event: int(event.metadata.resource_version))
        return [(event.reason, event.note) for event in ordered]


def _telling(driver: EmbeddedDriver) -> OnChange[Any]:
    def changed(old: Any | None, new: Any | None) -> None:
        driver.observe(old, new)

    return changed


Story = Callable[[World], Awaitable[None]]


def played(story: Story, *drivers: Driver[Any, Any]) -> None:
    """Tell the story in a world of its own, in virtual time. Without drivers there is the tokens driver."""

    async def main() -> None:
        world = World(*drivers)
        caches = asyncio.create_task(world.cluster.informers.run())
        await world.cluster.informers.synced()
        await story(world)
        assert not caches.done()
        caches.cancel()

    run(main())


def unreserving(holding: Holding) -> None:
    """The holding is being released."""
    holding.phase = Phase.UNRESERVING


class Acting:
    """The parts that act on the world's claims, wired as the controller does; no worker calls them."""

    def __init__(self, world: World) -> None:
        self.closed: list[PodReference] = []
        self.queue: WorkQueue[Key] = WorkQueue()
        state, records = world.state, world.records
        releases: WorkQueue[str] = WorkQueue()
        leftovers = LostNodesData(world.client, state.cluster, state.ledger, releases, world.clock)
        self.unused_deadlines = UnusedClaimDeadlines(state.cluster, world.clock)
        self.releases = Releases(world.client, state, releases, leftovers, self.unused_deadlines)
        self.unseen_users = UnseenUsers(world.client, state.cluster, state.ledger)
        self.deallocator = Deallocator(
            state, records, self.unseen_users, self.releases, self._close, world.wakeups, self.unused_deadlines
        )
        self.allocator = Allocator(state)
        self.immediate = ImmediateClaims(state, self.allocator, records.claims, self.deallocator, self.queue)
        stranding = Stranding(state, self.deallocator, Recorder(world.client, world.clock, "test"), world.clock)
        self.claims = ClaimReconciler(
            world.client, state, self.deallocator, records, self.immediate, self.unused_deadlines, stranding
        )

    async def _close(self, pod: PodReference) -> None:
        self.closed.append(pod)

    @property
    def queued(self) -> int:
        """How many claims are to be looked at now."""
        return self.queue.statistics().ready
