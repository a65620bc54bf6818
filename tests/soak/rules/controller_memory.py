"""What a controller has in memory, for rules that judge its decisions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.soak.rules.holds import Hold
from tests.soak.rules.judge import Taken, Use

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, NODES, PODS, RESOURCE_SLICES, Resource
from parley.control.holding import Holding
from parley.control.nominations import Nomination
from parley.kube.memory import MemoryServer
from parley.scheduler.controller import Controller
from parley.sdk import Device as HeldDevice

RELEVANT_KINDS = frozenset(
    one.untyped() for one in (PODS, NODES, CLASSES, CLAIMS, BUILTIN_CLAIMS, RESOURCE_SLICES)
)
"""Kinds of which the caches must be complete for plans to be judged."""

CLASSES_AND_CLAIMS = frozenset(one.untyped() for one in (CLASSES, CLAIMS))
"""The same for what becomes of plans."""


@dataclass(frozen=True, slots=True)
class ControllerMemory:
    """The memory of one controller. `held` is what its driver holds: devices, and whether only shares of them, by
    the claim's UID."""

    controller: Controller
    held: Mapping[str, tuple[tuple[HeldDevice, ...], bool]]

    @property
    def nominations(self) -> Sequence[Nomination]:
        """The nodes that it keeps for preemptors."""
        return tuple(self.controller._base.state.nominations._by_pod.values())

    def is_complete(self, server: MemoryServer, kinds: frozenset[Resource[Any]] = RELEVANT_KINDS) -> bool:
        """Whether its caches have every change of these kinds."""
        caches = [cache for cache in self.controller.caches if cache.resource.untyped() in kinds]
        histories = [(cache, server.store.collection(cache.resource).history._changes) for cache in caches]
        return all(not changes or int(cache._version or 0) >= changes[-1].version for cache, changes in histories)

    def believed_to_allow_preemption(self, server: MemoryServer) -> frozenset[str]:
        """Names of the classes that say LowerPriority in its cache, while that lacks a change of any class."""
        if self.is_complete(server, frozenset({CLASSES.untyped()})):
            return frozenset()
        classes = self.controller._base.state.cluster.classes()
        return frozenset(one.metadata.name for one in classes if one.preemption == "LowerPriority")

    def servable(self, instead_of: str) -> frozenset[str]:
        """UIDs of the unbound pods whose generated claims are in its caches, as its own writes have left them, and
        whose predecessors of the same name hold nothing any more: that is released first. Not those behind a pod
        of their kind for which a driver is allocating, other than the one with the UID `instead_of`."""
        cluster, ledger = self.controller._base.state.cluster, self.controller.ledger
        ahead = set(ledger.allocating.values()) - {instead_of}
        kinds = {pod.metadata.labels.get("kind") for pod in cluster.pods() if pod.metadata.uid in ahead}
        unbound = (pod for pod in cluster.pods() if not pod.spec.node_name)
        queue = self.controller._base.queues.pods
        found = [
            pod
            for pod in unbound
            if pod.metadata.labels.get("kind") not in kinds
            and not queue.failures((pod.metadata.namespace, pod.metadata.name))
        ]
        return frozenset(
            pod.metadata.uid
            for pod in found
            if all(
                pod.metadata.uid in holding.pods
                for holding in ledger.of_pod_name(pod.metadata.namespace, pod.metadata.name)
            )
            and all(
                (mirror := cluster.generated.of_entry(pod, entry.name)) is not None
                and not cluster.own_writes.is_stale(mirror.metadata)
                for entry in pod.spec.resource_claims
                if entry.resource_claim_template_name
            )
        )

    def taken(self) -> Iterator[Taken]:
        """The devices that are held, by the one pod that uses the generated claim, or else by the claim."""
        for uid, (devices, shared) in self.held.items():
            holding = self.controller.ledger.get(uid)
            alone = holding is not None and not holding.named and len(holding.pods) == 1
            owner = next(iter(holding.pods)) if alone and holding is not None else uid
            yield from (((device.pool, device.device), Hold((owner, uid), shared)) for device in devices)

    @property
    def allocating(self) -> Mapping[str, str]:
        """The claims that its drivers are allocating now: pods' UIDs by the claims' UIDs."""
        return self.controller.ledger.allocating

    def allocating_on(self, node: str) -> Iterator[str]:
        """UIDs of the pods for which its drivers are allocating devices of the node now."""
        for claim, pod in self.allocating.items():
            devices, _ = self.held.get(claim, ((), False))
            if any(device.pool == node for device in devices):
                yield pod

    def used(self) -> Mapping[str, Use]:
        """The named claims that pods use, or that room is reserved for, by the claim's UID."""
        found = (one for one in self.controller.ledger if (one.named and one.pods) or one.allocation.reserve)
        return {one.uid: Use(one.claim, one.node, frozenset(one.pods)) for one in found}

    def unconfirmed(self) -> frozenset[str]:
        """UIDs of claims that nodes have yet to confirm they no longer have prepared."""
        return frozenset(one.uid for one in self.controller.ledger if one.owed)

    def released_by(self, plan: Nomination) -> frozenset[str]:
        """UIDs of the victims of a plan, and of the claims that only they use: their devices become free, unless
        the claims stay allocated without users."""
        used = (one for one in self.controller.ledger if one.pods and one.pods.keys() <= plan.terminating)
        return plan.terminating.union(holding.uid for holding in used if not self._outlives(holding))

    def _outlives(self, holding: Holding) -> bool:
        class_ = self.controller._base.state.cluster.class_(holding.class_name)
        keeps = class_ is not None and class_.when_unused is not None
        return holding.immediate or (holding.named and keeps)

    def assumed(self) -> Mapping[str, str]:
        """Nodes of the pods that have claims, but of those whose claims are being released one by one at this
        moment, because their scheduler rejected them."""
        usage = self.controller._base.state.cluster.usage
        of_pods = ((uid, holding.node) for holding in self.controller.ledger for uid in holding.pods)
        return {uid: node for uid, node in of_pods if usage.share(uid) is not None}

    def beside(self, plan: Nomination) -> list[Nomination]:
        """Other nominations for the plan's node, of the same or higher priority, without any allocation yet."""
        return [one for one in self._others(plan) if not self.controller.ledger.of_pod(one.pod)]

    def _others(self, plan: Nomination) -> Iterator[Nomination]:
        others = (one for one in self.nominations if one.pod.uid != plan.pod.uid and one.node == plan.node)
        return (one for one in others if one.priority >= plan.priority)

    def is_half_allocated(self, plan: Nomination) -> bool:
        """Whether something is being allocated or released for another pod that the node is kept for."""
        wanted = (
            {claim.uid for request in one.requests.values() for claim in request.claims}
            for one in self._others(plan)
            if self.controller.ledger.of_pod(one.pod)
        )
        return any(not uids <= self.held.keys() for uids in wanted)

    def is_unwritten(self, uid: str) -> bool:
        """Whether the claim is allocated, but its built-in claim does not record that yet."""
        holding = self.controller.ledger.get(uid)
        return holding is not None and not holding.written.is_known

    def leaves_anyway(self, uid: str) -> bool:
        """Whether the pod's eviction was already requested."""
        return self.controller._base.state.nominations.is_evicted(uid)
