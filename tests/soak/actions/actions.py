"""What users, administrators and meddlers do to the cluster, at random. Their requests take effect at once.

Every action is small and may find nothing to work on. When to rest is decided in `running`, what must hold then in
`quiescence`.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.soak.actions.priorities import Preemption, Priorities
from tests.soak.actions.tenant import Tenant
from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.cluster.leased import MOST_SKEW, LeasedProcess
from tests.soak.cluster.parts import CLAIM_CONTROLLER
from tests.soak.cluster.processes import acting_as
from tests.soak.cluster.taints import TOLERATIONS, some_taint
from tests.soak.cluster.world import World
from tests.soak.kinds import claims, classes, nodes, pods
from tests.soak.kinds.claims import claim_kinds, is_on_demand
from tests.soak.kinds.classes import (
    FAR_CLASS_KINDS,
    FAR_TEMPLATE_KINDS,
    KEPT_TEMPLATE_KINDS,
    LASTING_CLASS_KINDS,
    MAKING_TEMPLATES,
    ON_DEMAND_CLASS_KINDS,
    REFERRING_CLASS_KINDS,
    REFERRING_TEMPLATE_KINDS,
    STANDING_CLASS_KINDS,
    TEMPLATE_KINDS,
    TOKEN_CLASS_KINDS,
    TOKEN_TEMPLATE_KINDS,
    VIEW_CLASS_KINDS,
    VIEW_TEMPLATE_KINDS,
    YIELDING_CLASS_KINDS,
    YIELDING_TEMPLATE_KINDS,
)
from tests.soak.kinds.names import DRIVER, FAR, NAMESPACE, PARAMETERS, ZONE
from tests.soak.kinds.nodes import FAR_DEVICES, NODE_KINDS
from tests.soak.kinds.pods import (
    CROWDING_POD_KINDS,
    FAR_POD_KINDS,
    KEPT_POD_KINDS,
    LASTING_POD_KINDS,
    ON_DEMAND_POD_KINDS,
    POD_KINDS,
    REFERRING_POD_KINDS,
    STANDING_POD_KINDS,
    TOKEN_POD_KINDS,
    VIEW_POD_KINDS,
    YIELDING_POD_KINDS,
)
from tests.soak.rules import limits
from tests.soak.rules.keeping import has_failed
from tests.soak.rules.reservations import HOME

from parley.api.names import GENERATED_LABEL, UNREACHABLE_TAINT
from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIMS,
    CLASSES,
    CONFIG_MAPS,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    Resource,
)
from parley.kube.client import ApiError
from parley.kube.memory.managed_fields import UPDATE, Manager
from parley.kube.memory.metadata import Propagation
from parley.kube.memory.watch_cache import Stored

Json = dict[str, Any]
MOST_PODS = 14
HELD_KINDS: Sequence[Resource[Any]] = (PODS, PODS, BUILTIN_CLAIMS, BUILTIN_CLAIMS, CLAIMS, NODES, POD_SCHEDULINGS)
"""Whose watches may be far behind. Of classes, what they said a while ago counts for who is evicted."""

OTHERS_FINALIZER = "soak.example.com/held"
POLICIES: tuple[Propagation, ...] = ("Background", "Foreground", "Orphan")
MORE_PODS = 20
"""How often pods are added besides where they have priorities, so that something is lacking."""


class Actions:
    """Acts on a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance: random.Random = world.chance
        self._server = world.server
        self._pods = 0
        self._generation = 1
        self._missing: dict[str, frozenset[int]] = {}
        self._missing_far: dict[str, frozenset[int]] = {}
        self._classes = dict(world.plan.preemption.classes)
        self._pod_kinds = dict(POD_KINDS)
        self._keeps: tuple[Json | None, ...] = ()
        if world.plan.lasting:
            self._classes.update(LASTING_CLASS_KINDS)
            self._pod_kinds.update(LASTING_POD_KINDS)
            self._keeps = (None, {"keepSeconds": 20}, {"keepSeconds": 240})
        if world.plan.viewing:
            self._classes.update(VIEW_CLASS_KINDS)
            self._pod_kinds.update(VIEW_POD_KINDS)
        if world.plan.yielding:
            self._classes.update(YIELDING_CLASS_KINDS)
            self._pod_kinds.update(YIELDING_POD_KINDS)
        if world.plan.standing:
            self._classes.update(STANDING_CLASS_KINDS)
            self._pod_kinds.update(STANDING_POD_KINDS)
        if world.plan.on_demand:
            self._classes.update(ON_DEMAND_CLASS_KINDS)
            self._pod_kinds.update(ON_DEMAND_POD_KINDS)
        if world.plan.referring:
            self._classes.update(REFERRING_CLASS_KINDS)
            self._pod_kinds.update(REFERRING_POD_KINDS)
        self._varied = sorted(self._classes)
        if world.plan.tokens:
            self._classes.update(TOKEN_CLASS_KINDS)
            self._pod_kinds.update(TOKEN_POD_KINDS)
        if world.plan.standalone:
            self._classes.update(FAR_CLASS_KINDS)
            self._pod_kinds.update(FAR_POD_KINDS)
        self._claims = claim_kinds(self._classes)
        self._made_by_users = [name for name in self._claims if not is_on_demand(name)]
        self._making = MAKING_TEMPLATES if world.plan.on_demand else {}
        self._actions: list[tuple[int, Callable[[], Awaitable[None] | None]]] = [
            (34, self._add_pod),
            (16, self._delete_pod),
            (6, self._finish_pod),
            (4, self._force_pod),
            (3, self._replace_pod),
            (4, self._cordon),
            (2, self._remove_node),
            (4, self._add_node),
            (5, self._publish),
            (3, self._change_claim),
            (3, self._kill),
            (2, self._outage),
            (2, self._stop),
            (2, self._restart_part),
        ]
        if world.plan.meddling:
            self._actions += [
                (5, self._change_class),
                (1, self._change_classes_existence),
                (4, self._clear),
                (4, self._delete_mirror),
                (1, self._delete_template_mirror),
                (1, self._delete_scheduling),
                (2, self._force_claim),
                (1, self._force_mirror),
            ]
        if world.plan.replacing:
            self._actions += [
                (3, self._replace_node),
                (3, self._replace_class),
                (4, self._replace_claim),
                (5, self._hold_pod),
                (4, self._let_pod_go),
                (2, self._hold_claim),
                (4, self._let_claim_go),
            ]
        if world.plan.on_demand:
            self._actions.append((2, self._change_template))
        if world.plan.tokens:
            self._actions += [(4, self._change_pool), (3, self._relabel)]
        if world.plan.referring:
            self._actions.append((4, self._change_parameters))
        if world.plan.limiting:
            self._actions.append((6, self._change_limits))
        if world.plan.meddling and world.plan.reserving == "Nominated":
            self._actions.append((4, self._disturb_reservation_pod))
        if world.plan.standalone:
            self._actions += [(4, self._publish_far), (3, self._kill_driver)]
            self._actions += [(3, self._change_far_class)] if world.plan.meddling else []
        if world.plan.tainting:
            self._actions.append((5, self._taint))
        if world.plan.lagging:
            self._actions.append((6, self._hold_watches))
        if world.plan.jumping:
            self._actions.append((6, self._set_wall_clock))
        self._priorities: Priorities | None = None
        if world.plan.preemption is not Preemption.NONE:
            self._priorities = Priorities(
                world.server, world.chance, world.plan.preemption, crowded=world.plan.crowded
            )
            self._pod_kinds.update(KEPT_POD_KINDS)
            self._pod_kinds.update(CROWDING_POD_KINDS if world.plan.crowded else {})
            self._actions += [*self._priorities.actions(), (MORE_PODS, self._add_pod), (2, self._kill_preempting)]
        self._tenant = Tenant(world.server, world.chance)
        if world.plan.tenant:
            self._actions.append((25, self._tenant.act))
        self._weights = [weight for weight, _ in self._actions]

    def begin(self) -> None:
        """The cluster's equipment."""
        for name in NODE_KINDS:
            self._create(NODES, nodes.node(name))
            self._create(RESOURCE_SLICES, nodes.slice_(name, 1))
            if self._world.plan.standalone:
                self._create(RESOURCE_SLICES, nodes.far_slice(name, 1))
        for name, kind in self._classes.items():
            self._create(CLASSES, classes.class_(name, kind))
        kept = KEPT_TEMPLATE_KINDS if self._priorities is not None else ()
        views = VIEW_TEMPLATE_KINDS if self._world.plan.viewing else ()
        guests = YIELDING_TEMPLATE_KINDS if self._world.plan.yielding else ()
        referring = REFERRING_TEMPLATE_KINDS if self._world.plan.referring else ()
        tokens = TOKEN_TEMPLATE_KINDS if self._world.plan.tokens else ()
        if self._world.plan.referring:
            self._create(CONFIG_MAPS, classes.config_map())
        far = FAR_TEMPLATE_KINDS if self._world.plan.standalone else ()
        for name in (*TEMPLATE_KINDS, *kept, *views, *guests, *referring, *tokens, *far):
            self._create(TEMPLATES, classes.template(name))
        for name in self._making:
            self._create(TEMPLATES, claims.making_template(name))
        for name in self._made_by_users:
            self._create(CLAIMS, claims.claim(name))
        if self._priorities is not None:
            self._priorities.begin()

    async def act(self) -> None:
        """Do one thing."""
        _, action = self._chance.choices(self._actions, self._weights)[0]
        waiting = action()
        if waiting is not None:
            await waiting

    async def mend(self) -> None:
        """Everything in good order again: nodes, devices, classes, claims, and nobody interferes."""
        self._world.set_calm(True)
        if self._world.plan.tenant:
            self._tenant.mend()
        for name in NODE_KINDS:
            self._ensure(NODES, nodes.node(name))
            self._world.parts.kubelets.machine_there(name)
            self._patch(NODES, name, {"spec": {"unschedulable": None, "taints": None}})
            self._patch(NODES, name, {"metadata": {"labels": {ZONE: NODE_KINDS[name][0]}}})
            self._missing[name] = self._missing_far[name] = frozenset()
            self._set_slice(name)
        for name, kind in self._classes.items():
            self._ensure(CLASSES, classes.class_(name, kind))
            self._set_class(name)
        if self._priorities is not None:
            self._priorities.mend()
        for name in self._making:
            self._ensure(TEMPLATES, claims.making_template(name))
        if self._world.plan.referring:
            self._ensure(CONFIG_MAPS, classes.config_map())
            self._patch(CONFIG_MAPS, PARAMETERS, classes.config_map())
        await self._world.parts.restart(CLAIM_CONTROLLER)  # it may still believe in claims that are gone
        for found in [found for found in self._all(CLAIMS) if has_failed(found.body)]:
            self._delete(CLAIMS, found.meta["name"])  # made again below, unless pods use it
        while self._held(PODS) or self._held(CLAIMS):
            self._let_pod_go()
            self._let_claim_go()
        await self._world.let_pass(60)
        if self._world.plan.cascading:
            self._sweep()
        if self._world.plan.outside:
            self._world.clean_array()
        for name in self._made_by_users:
            self._ensure(CLAIMS, claims.claim(name))

    def _sweep(self) -> None:
        """What a pod owned that was deleted without it is left to who did so."""
        for resource in (POD_SCHEDULINGS, BUILTIN_CLAIMS, CLAIMS):
            for stored in self._all(resource):
                kept = stored.meta.get("ownerReferences") or stored.meta.get("finalizers")
                kept = kept or (resource == CLAIMS and GENERATED_LABEL not in (stored.meta.get("labels") or {}))
                if not kept:
                    self._delete(resource, stored.meta["name"])

    def delete_pods(self) -> None:
        """All of them."""
        for stored in self._all(PODS):
            self._delete(PODS, stored.meta["name"])

    # -- pods

    def _add_pod(self) -> None:
        if len(self._all(PODS)) >= MOST_PODS:
            return
        self._pods += 1
        weights = [weight for weight, *_ in self._pod_kinds.values()]
        kind = self._chance.choices(list(self._pod_kinds), weights)[0]
        node = self._some_node() if self._chance.random() < 0.05 else ""
        seconds = self._chance.uniform(0, 20) if self._chance.random() < 0.2 else None
        scheduler = SECOND_SCHEDULER if self._chance.random() < self._world.plan.extender else ""
        name = f"p{self._pods}-{kind}"
        wishes = self._wishes()
        self._create(PODS, pods.pod(name, kind, node=node, seconds=seconds, scheduler=scheduler, wishes=wishes))

    def _wishes(self) -> Json | None:
        wishes = self._priorities.wishes() if self._priorities is not None else {}
        if self._world.plan.tainting:
            tolerations = list(self._chance.choice(TOLERATIONS))
            wishes = {**wishes, "spec": {**wishes.get("spec", {}), "tolerations": tolerations}}
        return wishes

    def _delete_pod(self) -> None:
        if (found := self._some(PODS)) is not None:
            self._delete(PODS, found.meta["name"], policy=self._policy())

    def _policy(self) -> Propagation:
        """What becomes of what is owned by what is deleted."""
        return self._chance.choice(POLICIES) if self._world.plan.cascading else "Background"

    def _force_pod(self) -> None:
        if (found := self._some(PODS)) is not None:
            self._delete(PODS, found.meta["name"], grace=0)

    def _finish_pod(self) -> None:
        found = self._some(PODS)
        if found is not None and found.body["status"].get("phase") == "Running":
            phase = self._chance.choice(["Succeeded", "Failed"])
            self._patch(PODS, found.meta["name"], {"status": {"phase": phase}}, subresource="status")

    def _replace_pod(self) -> None:
        """A pod of the same name follows at once, as in a StatefulSet."""
        if (found := self._some(PODS)) is not None:
            name, kind = found.meta["name"], found.meta["labels"]["kind"]
            scheduler = found.body["spec"]["schedulerName"]
            self._delete(PODS, name, grace=0)
            if not self._there(PODS, name):
                self._create(PODS, pods.pod(name, kind, scheduler=scheduler, wishes=self._wishes()))

    # -- the cluster

    def _some_node(self) -> str:
        return self._chance.choice(sorted(NODE_KINDS))

    def _cordon(self) -> None:
        cordoned = self._chance.random() < 0.5
        self._patch(NODES, self._some_node(), {"spec": {"unschedulable": cordoned or None}})

    def _taint(self) -> None:
        """The node gets a NoExecute taint, or loses it. The kubelet of one that is unreachable does nothing."""
        name = self._some_node()
        if (node := self._found(NODES, name)) is None:
            return
        taints = [] if (node.body.get("spec") or {}).get("taints") else [some_taint(self._chance)]
        if any(taint["key"] == UNREACHABLE_TAINT for taint in taints):
            self._world.parts.kubelets.stop(name)
        else:
            self._world.parts.kubelets.machine_there(name)
        self._patch(NODES, name, {"spec": {"taints": taints or None}})

    def _remove_node(self, name: str = "") -> None:
        """The node, its devices, and its pods are gone, as after the removal of a machine; or the pods' objects
        stay until they are collected, or another machine of the name runs them again."""
        name = name or self._some_node()
        self._delete(NODES, name)
        self._delete(RESOURCE_SLICES, f"{name}-devices")
        self._delete(RESOURCE_SLICES, f"{name}-far")
        self._world.parts.kubelets.machine_gone(name)
        if self._world.plan.lingering:
            return
        for stored in self._all(PODS):
            if stored.body["spec"].get("nodeName") == name:
                self._delete(PODS, stored.meta["name"], grace=0)

    def _add_node(self, name: str = "") -> None:
        name = name or self._some_node()
        self._ensure(NODES, nodes.node(name))
        self._world.parts.kubelets.machine_there(name)
        self._set_slice(name)

    def _publish(self) -> None:
        name = self._some_node()
        if self._there(NODES, name):
            device = self._chance.randrange(len(NODE_KINDS[name][1]))
            self._missing[name] = self._missing.get(name, frozenset()) ^ {device}
            self._set_slice(name)

    def _publish_far(self) -> None:
        """The standalone driver has a device less there, or has it again."""
        name = self._some_node()
        if self._there(NODES, name) and FAR_DEVICES[name]:
            device = self._chance.randrange(len(FAR_DEVICES[name]))
            self._missing_far[name] = self._missing_far.get(name, frozenset()) ^ {device}
            self._set_slice(name)

    def _set_slice(self, name: str) -> None:
        self._generation += 1
        found = [nodes.slice_(name, self._generation, self._missing.get(name, frozenset()))]
        if self._world.plan.standalone:
            found.append(nodes.far_slice(name, self._generation, self._missing_far.get(name, frozenset())))
        for body in found:
            if self._there(RESOURCE_SLICES, body["metadata"]["name"]):
                self._patch(RESOURCE_SLICES, body["metadata"]["name"], {"spec": body["spec"]})
            else:
                self._create(RESOURCE_SLICES, body)

    def _change_class(self) -> None:
        name = self._chance.choice(self._varied)
        only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self._some_node()]}]}
        change: Json = self._chance.choice(
            [
                {"suitableNodes": {"nodeSelectorTerms": [only]}},
                {"suitableNodes": None},
                {"parameters": {"colour": "blue"}},
                {"parameters": None},
                {"placement": "Exact"},
                {"placement": "Optimistic"},
                {"shareable": True},
                {"shareable": False},
                {"driverName": "nobody.example.com"},
                {"driverName": DRIVER},
                {"driverName": DRIVER, "parameters": None, "suitableNodes": None},
                *({"whenUnused": keeps} for keeps in self._keeps),
            ]
        )
        self._patch(CLASSES, name, change)

    def _change_far_class(self) -> None:
        """One of the standalone driver's."""
        only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self._some_node()]}]}
        change: Json = self._chance.choice(
            [
                {"suitableNodes": {"nodeSelectorTerms": [only]}},
                {"suitableNodes": None},
                {"parameters": {"colour": "blue"}},
                {"parameters": None},
                {"shareable": True},
                {"shareable": False},
                {"driverName": "nobody.example.com"},
                {"driverName": DRIVER},
                {"driverName": FAR},
                {"driverName": FAR, "parameters": None, "suitableNodes": None},
            ]
        )
        self._patch(CLASSES, self._chance.choice(sorted(FAR_CLASS_KINDS)), change)

    def _set_class(self, name: str) -> None:
        usual = {"parameters": None, "suitableNodes": None, "placement": "Optimistic", "shareable": False}
        if self._world.plan.lasting:
            usual["whenUnused"] = None
        if self._priorities is not None:
            usual["preemption"] = "Never"
        self._patch(CLASSES, name, {**usual, "driverName": DRIVER, **self._classes[name]})

    def _relabel(self) -> None:
        """The node leaves its zone, or is in it again."""
        name = self._some_node()
        zone = NODE_KINDS[name][0] if self._chance.random() < 0.5 else None
        self._patch(NODES, name, {"metadata": {"labels": {ZONE: zone}}})

    def _change_pool(self) -> None:
        name = self._chance.choice(sorted(TOKEN_CLASS_KINDS))
        self._patch(CLASSES, name, {"parameters": {"pool": self._chance.randint(1, 4)}})

    def _change_parameters(self) -> None:
        """The object that has them goes, or comes; or nobody understands what is in it."""
        if self._chance.random() < 0.6:
            if not self._delete(CONFIG_MAPS, PARAMETERS):
                self._create(CONFIG_MAPS, classes.config_map())
            return
        text = self._chance.choice(["{}", "", "count: many", "count: [", "colour: blue"])
        self._patch(CONFIG_MAPS, PARAMETERS, {"data": {"parameters": text}})

    def _change_limits(self) -> None:
        limited = sorted(self._classes.keys() - FAR_CLASS_KINDS.keys())
        self._patch(CLASSES, self._chance.choice(limited), {"limits": limits.drawn(self._chance)})

    def _change_classes_existence(self) -> None:
        name = self._chance.choice(sorted(self._classes))
        if not self._delete(CLASSES, name):
            self._create(CLASSES, classes.class_(name, self._classes[name]))

    def _change_claim(self) -> None:
        """A named claim is deleted, or made again."""
        name = self._chance.choice(sorted(self._claims))
        if not self._delete(CLAIMS, name, policy=self._policy()) and name in self._made_by_users:
            self._create(CLAIMS, claims.claim(name))

    # -- what is replaced by another one of its name at once, and what others hold by finalizers

    def _replace_node(self) -> None:
        """A machine is made anew; its pods are gone a moment later, or have gone."""
        name = self._some_node()
        if self._there(NODES, name):
            self._remove_node(name)
            self._add_node(name)

    def _replace_class(self) -> None:
        name = self._chance.choice(sorted(self._classes))
        if self._delete(CLASSES, name):
            self._create(CLASSES, classes.class_(name, self._classes[name]))

    def _replace_claim(self) -> None:
        """Where nobody holds it."""
        name = self._chance.choice(sorted(self._claims))
        if self._delete(CLAIMS, name) and self._chance.random() < 0.3:
            self._patch(CLAIMS, name, {"metadata": {"finalizers": None}})
        if not self._there(CLAIMS, name):
            self._create(CLAIMS, claims.claim(name))

    def _hold(self, resource: Resource[Any], found: Stored | None) -> None:
        if found is not None and not found.meta.get("deletionTimestamp"):
            held = [*(found.meta.get("finalizers") or ()), OTHERS_FINALIZER]
            self._patch(resource, found.meta["name"], {"metadata": {"finalizers": held}})

    def _held(self, resource: Resource[Any]) -> list[Stored]:
        return [one for one in self._all(resource) if OTHERS_FINALIZER in (one.meta.get("finalizers") or ())]

    def _let_go(self, resource: Resource[Any]) -> None:
        if found := self._held(resource):
            chosen = self._chance.choice(found)
            left = [name for name in chosen.meta["finalizers"] if name != OTHERS_FINALIZER]
            self._patch(resource, chosen.meta["name"], {"metadata": {"finalizers": left or None}})

    def _hold_pod(self) -> None:
        """As the controller of Jobs does until it has counted the pod."""
        self._hold(PODS, self._some(PODS))

    def _let_pod_go(self) -> None:
        self._let_go(PODS)

    def _hold_claim(self) -> None:
        self._hold(CLAIMS, self._some(CLAIMS))

    def _let_claim_go(self) -> None:
        self._let_go(CLAIMS)

    def _change_template(self) -> None:
        """One that makes claims goes, or comes."""
        name = self._chance.choice(sorted(self._making))
        if not self._delete(TEMPLATES, name):
            self._create(TEMPLATES, claims.making_template(name))

    # -- meddlers

    def _clear(self) -> None:
        if (found := self._some(BUILTIN_CLAIMS)) is not None:
            with acting_as("meddler"):
                cleared = {"allocation": None, "reservedFor": None, "devices": None}
                self._patch(BUILTIN_CLAIMS, found.meta["name"], {"status": cleared}, subresource="status")

    def _delete_mirror(self) -> None:
        if (found := self._some(BUILTIN_CLAIMS)) is not None:
            with acting_as("meddler"):
                self._delete(BUILTIN_CLAIMS, found.meta["name"])

    def _delete_template_mirror(self) -> None:
        if (found := self._some(BUILTIN_TEMPLATES)) is not None:
            with acting_as("meddler"):
                self._delete(BUILTIN_TEMPLATES, found.meta["name"])

    def _delete_scheduling(self) -> None:
        if (found := self._some(POD_SCHEDULINGS)) is not None:
            with acting_as("meddler"):
                self._delete(POD_SCHEDULINGS, found.meta["name"])

    def _force_claim(self) -> None:
        """An administrator deletes a named claim and takes its finalizers off."""
        name = self._chance.choice(sorted(self._claims))
        if self._delete(CLAIMS, name):
            self._patch(CLAIMS, name, {"metadata": {"finalizers": None}})

    def _force_mirror(self) -> None:
        """The same with a mirror."""
        if (found := self._some(BUILTIN_CLAIMS)) is not None:
            with acting_as("meddler"):
                self._delete(BUILTIN_CLAIMS, found.meta["name"])
                self._patch(BUILTIN_CLAIMS, found.meta["name"], {"metadata": {"finalizers": None}})

    def _disturb_reservation_pod(self) -> None:
        """Somebody deletes it, or a scheduler clears its nomination for a pod that preempts."""
        objects = self._server.store.collection(PODS).objects
        found = [stored for (namespace, _), stored in objects.items() if namespace == HOME]
        if not found:
            return
        name = self._chance.choice(found).meta["name"]
        with acting_as("meddler"):
            if self._chance.random() < 0.5:
                self._server.delete(PODS, name, HOME, grace=0)
                return
            body = {"status": {"nominatedNodeName": None}}
            self._server.patch(PODS, name, body, HOME, Manager("meddler", UPDATE, "status"))

    # -- processes and the network

    def _some_process(self) -> LeasedProcess | None:
        found = self._world.all_processes
        return self._chance.choice(found) if found else None

    async def _kill(self) -> None:
        if (process := self._some_process()) is not None:
            await self._world.restart(process, self._chance.uniform(0, 3), clean=self._chance.random() < 0.3)

    async def _kill_driver(self) -> None:
        """A standalone one."""
        if self._world.outside:
            process = self._chance.choice(self._world.outside)
            await self._world.restart(process, self._chance.uniform(0, 3), clean=self._chance.random() < 0.3)

    async def _restart_part(self) -> None:
        """As it is killed, or deposed by another of its kind."""
        await self._world.parts.restart(self._chance.choice(self._world.parts.restartable))

    async def _kill_preempting(self) -> None:
        """The controller that keeps something for a pod that others are evicted for."""
        leader = self._world.leader
        if leader is not None and leader.nominations:
            await self._world.restart(leader, self._chance.uniform(0, 3))

    def _outage(self) -> None:
        """One controller is cut off, or the API server is away for all of them."""
        seconds = self._chance.uniform(0.1, 60)
        cut = self._world.all_processes if self._chance.random() < 0.5 else [self._some_process()]
        for process in cut:
            if process is not None:
                self._server.note(f"{process.name} is cut off for {seconds:.1f} s")
                process.client.blackout(seconds)

    def _set_wall_clock(self) -> None:
        """Of a machine of Parley's, whose other clock goes on: it is ahead or behind then, or right again."""
        if (process := self._some_process()) is not None:
            process.skew = self._chance.choice((0.0, 0.0, self._chance.uniform(-MOST_SKEW, MOST_SKEW)))
            self._server.note(f"the clock of {process.name} is {process.skew:.1f} s ahead")

    def _hold_watches(self) -> None:
        """What a process sees of one kind is old for a while, and what it sees of others is not."""
        if (process := self._some_process()) is not None:
            kind, seconds = self._chance.choice(HELD_KINDS), self._chance.uniform(1, 120)
            self._server.note(f"{process.name} sees no change of {kind.plural} for {seconds:.1f} s")
            process.client.hold(kind, seconds)

    def _stop(self) -> None:
        """A controller's process is stopped, and goes on a while later."""
        if (process := self._some_process()) is not None:
            seconds = self._chance.uniform(0.1, 50)
            self._server.note(f"{process.name} is stopped for {seconds:.1f} s")
            self._world.loop.stop_process(process.name)
            self._world.loop.call_later(seconds, self._world.loop.continue_process, process.name)

    # -- requests

    def _all(self, resource: Resource[Any]) -> list[Stored]:
        objects = self._server.store.collection(resource).objects
        return [stored for (namespace, _), stored in objects.items() if namespace in ("", NAMESPACE)]

    def _some(self, resource: Resource[Any]) -> Stored | None:
        found = self._all(resource)
        return self._chance.choice(found) if found else None

    def _found(self, resource: Resource[Any], name: str) -> Stored | None:
        key = (NAMESPACE if resource.namespaced else "", name)
        return self._server.store.collection(resource).objects.get(key)

    def _there(self, resource: Resource[Any], name: str) -> bool:
        return self._found(resource, name) is not None

    def _ensure(self, resource: Resource[Any], body: Json) -> None:
        if not self._there(resource, body["metadata"]["name"]):
            self._create(resource, body)

    def _create(self, resource: Resource[Any], body: Json) -> None:
        self._server.create(resource, body, NAMESPACE if resource.namespaced else None, "user")

    def _patch(self, resource: Resource[Any], name: str, body: Json, *, subresource: str = "") -> None:
        """Where the object is gone or does not admit the change, nothing happens."""
        namespace = NAMESPACE if resource.namespaced else None
        try:
            self._server.patch(resource, name, body, namespace, Manager("user", UPDATE, subresource))
        except ApiError:
            pass

    def _delete(
        self, resource: Resource[Any], name: str, grace: int | None = None, policy: Propagation = "Background"
    ) -> bool:
        """Returns whether there was one."""
        if not self._there(resource, name):
            return False
        self._server.delete(resource, name, NAMESPACE if resource.namespaced else None, grace=grace, policy=policy)
        return True
