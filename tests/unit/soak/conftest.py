"""An observed API server with the soak's rules, in which a test plays everybody."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence, Set
from typing import Any

import orjson
import pytest
from tests.soak.cluster.observed import ObservedServer, Step
from tests.soak.cluster.processes import acting_as
from tests.soak.kinds import claims, classes, nodes, pods
from tests.soak.kinds.classes import ALL_TEMPLATE_KINDS
from tests.soak.kinds.names import DRIVER, NAMESPACE, typed
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.mirrors import Json
from tests.soak.rules.pod_state import Use

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, NODES, PODS, Resource
from parley.control.objects import mirror as mirrors
from parley.kube.memory.managed_fields import UPDATE, Manager
from parley.sdk import Allocation, Device
from parley.sdk.recorded import allocation_record
from parley.simulate.cluster import loop_clock
from parley.simulate.virtual_time import run

AT = "2026-01-01T00:00:00Z"
CONTROLLER = "controller-1"
SCHEDULER = "scheduler"


class Ruled:
    """The server, and what each of the others does to it. `faults` has what the rules found."""

    def __init__(self) -> None:
        self.known: Set[Use] = frozenset()
        self.rules = Invariants(lambda: set(self.known))
        self.observe: Callable[[Step], None] = self.rules.observe
        """Looks at each change."""
        self.server = ObservedServer(loop_clock(), 0, lambda step: self.observe(step), 60)

    @property
    def faults(self) -> list[str]:
        return self.rules.faults

    def create(self, resource: Resource[Any], body: Json, who: str = "user") -> Json:
        with acting_as(who):
            return self.server.create(resource, body, NAMESPACE if resource.namespaced else None, who).body

    def status(self, resource: Resource[Any], name: str, status: Json, who: str) -> Json:
        with acting_as(who):
            manager = Manager(who, UPDATE, "status")
            return self.server.patch(resource, name, {"status": status}, NAMESPACE, manager).body

    def node(self, name: str) -> None:
        self.create(NODES, nodes.node(name))

    def class_(self, name: str, **kind: Any) -> None:
        self.create(CLASSES, classes.class_(name, kind))

    def change_class(self, name: str, **changes: Any) -> None:
        self.server.patch(CLASSES, name, changes, None, Manager("user", UPDATE, ""))

    def body(self, resource: Resource[Any], name: str) -> Json:
        return self.server.store.collection(resource).objects[NAMESPACE, name].body

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def pod(self, name: str, kind: str, **spec: Any) -> Json:
        """A pod with its generated claims, which are named after it and the entry."""
        pod = self.create(PODS, pods.pod(name, kind, wishes={"spec": spec}))
        entries = {
            one["name"]: ALL_TEMPLATE_KINDS[one["resourceClaimTemplateName"]][0]
            for one in pod["spec"]["resourceClaims"]
            if "resourceClaimTemplateName" in one
        }
        statuses = [{"name": entry, "resourceClaimName": f"{name}-{entry}"} for entry in entries]
        meta = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": meta["uid"], "controller": True}
        for entry, class_ in entries.items():
            about = {
                "name": f"{name}-{entry}",
                "annotations": {"resource.kubernetes.io/pod-claim-name": entry},
                "ownerReferences": [owner],
            }
            request = {"name": "exclusive", "exactly": {"deviceClassName": "being-negotiated.parley.dev"}}
            config = [{"opaque": {"driver": "parley.dev", "parameters": {"resourceClassName": class_}}}]
            claim = {"metadata": about, "spec": {"devices": {"requests": [request], "config": config}}}
            self.create(BUILTIN_CLAIMS, typed(BUILTIN_CLAIMS, claim), "claim-controller")
        return self.status(PODS, name, {"resourceClaimStatuses": statuses}, "claim-controller")

    def claim(self, name: str) -> Json:
        """A named claim with its mirror."""
        made = self.create(CLAIMS, claims.claim(name))
        mirror = mirrors.claim_mirror(CLAIMS.decode(orjson.dumps(made)), shareable=False)
        self.create(BUILTIN_CLAIMS, mirror, CONTROLLER)
        return made

    def offer(self, claim: str, names: Sequence[str]) -> None:
        """Parley offers nodes, in place of what was there."""
        self.clear(claim)
        body = mirrors.offer_body(self._claim(claim), DRIVER, names, AT)
        self.status(BUILTIN_CLAIMS, claim, {"allocation": body}, CONTROLLER)

    def clear(self, claim: str, who: str = CONTROLLER) -> None:
        cleared = {"allocation": None, "reservedFor": None, "devices": None}
        self.status(BUILTIN_CLAIMS, claim, cleared, who)

    def fulfil(self, claim: str, node: str, device: str = "gpu-0") -> None:
        """Parley allocates a device of the node for the offer."""
        data = {"devices": [{"pool": node, "device": device}]}
        found = mirrors.fulfilled_body(DRIVER, Allocation((Device(node, device),), data), node, AT)
        self.status(BUILTIN_CLAIMS, claim, {"devices": found}, CONTROLLER)

    def allocate(self, claim: str, node: str, pod: Json | None, device: str = "gpu-0", **more: Any) -> None:
        """Parley allocates a device of the node, for the pod if one is given. The handle may have `more`."""
        data = {"devices": [{"pool": node, "device": device}], **more}
        found, users = Allocation((Device(node, device),), data), _users(*([pod] if pod is not None else []))
        body = mirrors.allocation_body(self._claim(claim), DRIVER, found, [node], AT, node_part=True)
        self.status(BUILTIN_CLAIMS, claim, {"allocation": body, "reservedFor": users}, CONTROLLER)

    def reserve(self, claim: str, *users: Json, who: str = SCHEDULER) -> None:
        """The claim is reserved for these pods alone."""
        self.status(BUILTIN_CLAIMS, claim, {"reservedFor": _users(*users)}, who)

    def nominate(self, pod: str, node: str | None, who: str = SCHEDULER) -> None:
        self.status(PODS, pod, {"nominatedNodeName": node}, who)

    def failed(self, pod: str, message: str, at: str = AT) -> None:
        """The scheduler reports that a binding failed."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": message}
        self.status(PODS, pod, {"conditions": [{**condition, "lastTransitionTime": at}]}, SCHEDULER)

    def bind(self, pod: Json, node: str, who: str = SCHEDULER) -> None:
        meta = pod["metadata"]
        body = {"metadata": {"name": meta["name"], "uid": meta["uid"]}, "target": {"kind": "Node", "name": node}}
        with acting_as(who):
            self.server.post(PODS, meta["name"], "binding", body, NAMESPACE)

    def record(self, claim: str, node: str, pod: Json, device: str = "gpu-0") -> None:
        """Parley records the device in the named claim, for the pod."""
        found = allocation_record(DRIVER, Allocation((Device(node, device),)), node, shareable=False)
        status = {"driverName": DRIVER, "allocation": found, "reservedFor": _users(pod)}
        self.status(CLAIMS, claim, status, CONTROLLER)

    def clear_record(self, claim: str, who: str = CONTROLLER) -> None:
        self.status(CLAIMS, claim, {"driverName": None, "allocation": None, "reservedFor": None}, who)

    def delete(self, resource: Resource[Any], name: str, who: str) -> None:
        """At once, whatever finalizers it has."""
        namespace = NAMESPACE if resource.namespaced else None
        with acting_as(who):
            self.server.patch(
                resource, name, {"metadata": {"finalizers": None}}, namespace, Manager(who, UPDATE, "")
            )
            self.server.delete(resource, name, namespace, grace=0)

    def start(self, pod: Json, claim: str, node: str, **more: Any) -> None:
        """The pod is bound to the node, where a device is allocated, and that is prepared."""
        self.node(node)
        self.allocate(claim, node, pod, **more)
        self.bind(pod, node)
        self.rules.prepared(pod["metadata"]["uid"])

    def _claim(self, name: str) -> BuiltinClaim:
        return BUILTIN_CLAIMS.decode(self.server.store.collection(BUILTIN_CLAIMS).objects[NAMESPACE, name].data)


def _users(*pods: Json) -> list[Json]:
    metas = [pod["metadata"] for pod in pods]
    return [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]} for meta in metas]


Story = Callable[[Ruled], Coroutine[Any, Any, None]]


@pytest.fixture
def play() -> Callable[[Story], None]:
    """Plays a story in virtual time, in which time passes only when it waits."""

    async def told(story: Story) -> None:
        await story(Ruled())

    return lambda story: run(told(story))
