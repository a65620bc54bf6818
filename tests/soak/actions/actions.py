"""What can happen in a world, and how often; and its objects in good order, at the beginning and at rest.

Every action is small and may find nothing to work on. When to rest is decided in `running`, what must hold then in
`rules.quiescence`.
"""

from collections.abc import Awaitable, Callable, Iterator

from tests.soak.actions.claims import ClaimActions
from tests.soak.actions.classes import ClassActions
from tests.soak.actions.faults import Faults
from tests.soak.actions.finalizers import Finalizers
from tests.soak.actions.meddlers import Meddlers
from tests.soak.actions.nodes import NodeActions
from tests.soak.actions.pods import PodActions
from tests.soak.actions.priorities import Preemption, Priorities
from tests.soak.actions.requests import Requests
from tests.soak.actions.tenant import Tenant
from tests.soak.cluster.parts import CLAIM_CONTROLLER
from tests.soak.cluster.world import World
from tests.soak.kinds import claims, classes
from tests.soak.kinds.of_world import Kinds
from tests.soak.rules.kept_claims import has_failed

from parley.api.names import GENERATED_LABEL
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, CONFIG_MAPS, POD_SCHEDULINGS, PODS, TEMPLATES

MORE_PODS = 20
"""How often pods are added besides where they have priorities, so that something is lacking."""

Weighted = tuple[int, Callable[[], Awaitable[None] | None]]
"""How often an action is drawn, and the action."""


class Actions:
    """Acts on a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance
        self._kinds = kinds = Kinds(world.plan)
        self._requests = requests = Requests(world)
        self._priorities: Priorities | None = None
        if world.plan.preemption is not Preemption.NONE:
            self._priorities = Priorities(
                world.server, world.chance, world.plan.preemption, full_nodes=world.plan.full_nodes
            )
        self._pods = PodActions(world, requests, kinds.pods, self._priorities)
        self._nodes = NodeActions(world, requests)
        self._classes = ClassActions(world, requests, kinds)
        self._claims = ClaimActions(world, requests, kinds)
        self._finalizers = Finalizers(world, requests)
        self._meddlers = Meddlers(world, requests, kinds)
        self._tenant = Tenant(world.server, world.chance)
        self._faults = Faults(world)
        self._actions = [*self._always(), *self._by_plan(), *self._with_priorities()]
        if world.plan.hostile_tenant:
            self._actions.append((25, self._tenant.act))
        self._weights = [weight for weight, _ in self._actions]

    def _always(self) -> Iterator[Weighted]:
        yield 34, self._pods.add
        yield 16, self._pods.delete
        yield 6, self._pods.finish
        yield 4, self._pods.force_delete
        yield 3, self._pods.replace
        yield 4, self._nodes.cordon
        yield 2, self._nodes.remove
        yield 4, self._nodes.add
        yield 5, self._nodes.publish
        yield 3, self._claims.delete_or_create
        yield 3, self._faults.kill
        yield 2, self._faults.outage
        yield 2, self._faults.stop
        yield 2, self._faults.restart_part

    def _by_plan(self) -> Iterator[Weighted]:
        plan = self._world.plan
        if plan.interference:
            yield 5, self._classes.change
            yield 1, self._classes.delete_or_create
            yield 4, self._meddlers.clear
            yield 4, self._meddlers.delete_mirror
            yield 1, self._meddlers.delete_template_mirror
            yield 1, self._meddlers.delete_scheduling
            yield 2, self._meddlers.force_claim
            yield 1, self._meddlers.force_mirror
        if plan.recreated_objects:
            yield 3, self._nodes.replace
            yield 3, self._classes.replace
            yield 4, self._claims.replace
            yield 5, self._finalizers.hold_pod
            yield 4, self._finalizers.let_pod_go
            yield 2, self._finalizers.hold_claim
            yield 4, self._finalizers.let_claim_go
        if plan.on_demand:
            yield 2, self._claims.delete_or_create_template
        if plan.tokens:
            yield 4, self._classes.change_pool
            yield 3, self._nodes.relabel
        if plan.parameter_references:
            yield 4, self._classes.change_parameters
        if plan.class_limits:
            yield 6, self._classes.change_limits
        if plan.interference and plan.reserved_room == "Nominated":
            yield 4, self._meddlers.disturb_reservation_pod
        if plan.standalone:
            yield 4, self._nodes.publish_standalone
            yield 3, self._faults.kill_driver
        if plan.standalone and plan.interference:
            yield 3, self._classes.change_standalone
        if plan.no_execute_taints:
            yield 5, self._nodes.taint
        if plan.parley_watch_lag:
            yield 6, self._faults.hold_watches
        if plan.clock_jumps:
            yield 6, self._faults.set_wall_clock

    def _with_priorities(self) -> Iterator[Weighted]:
        if self._priorities is not None:
            yield from self._priorities.actions()
            yield MORE_PODS, self._pods.add
            yield 2, self._faults.kill_preempting

    async def act(self) -> None:
        """Do one thing."""
        _, action = self._chance.choices(self._actions, self._weights)[0]
        waiting = action()
        if waiting is not None:
            await waiting

    def begin(self) -> None:
        """Create the objects that a world has from the beginning."""
        create, kinds = self._requests.create, self._kinds
        self._nodes.create()
        for name, kind in kinds.classes.items():
            create(CLASSES, classes.class_(name, kind))
        if self._world.plan.parameter_references:
            create(CONFIG_MAPS, classes.config_map())
        for name in kinds.templates:
            create(TEMPLATES, classes.template(name))
        for name in kinds.on_demand_templates:
            create(TEMPLATES, claims.on_demand_template(name))
        for name in kinds.users_claims:
            create(CLAIMS, claims.claim(name))
        if self._priorities is not None:
            self._priorities.begin()

    async def mend(self) -> None:
        """Everything is in good order again: nodes, devices, classes, claims; and nobody interferes."""
        self._world.set_calm(True)
        if self._world.plan.hostile_tenant:
            self._tenant.mend()
        self._nodes.mend()
        self._classes.mend()
        if self._priorities is not None:
            self._priorities.mend()
        for name in self._kinds.on_demand_templates:
            self._requests.ensure(TEMPLATES, claims.on_demand_template(name))
        if self._world.plan.parameter_references:
            self._classes.mend_parameters()
        await self._world.parts.restart(CLAIM_CONTROLLER)  # it may still believe in claims that are gone
        for found in [found for found in self._requests.all(CLAIMS) if has_failed(found.body)]:
            self._requests.delete(CLAIMS, found.meta["name"])  # created again below, unless pods use it
        self._finalizers.mend()
        await self._world.let_pass(60)
        if self._world.plan.propagation_policies:
            self._delete_orphans()
        if self._world.plan.standalone_external_state:
            self._world.clean_array()
        for name in self._kinds.users_claims:
            self._requests.ensure(CLAIMS, claims.claim(name))

    def _delete_orphans(self) -> None:
        """What a pod owned that was deleted without it: that is left to whoever deletes so."""
        for resource in (POD_SCHEDULINGS, BUILTIN_CLAIMS, CLAIMS):
            for stored in self._requests.all(resource):
                kept = stored.meta.get("ownerReferences") or stored.meta.get("finalizers")
                kept = kept or (resource == CLAIMS and GENERATED_LABEL not in (stored.meta.get("labels") or {}))
                if not kept:
                    self._requests.delete(resource, stored.meta["name"])

    def delete_pods(self) -> None:
        """Delete all pods."""
        for stored in self._requests.all(PODS):
            self._requests.delete(PODS, stored.meta["name"])
