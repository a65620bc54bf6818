"""What a world is like: drawn from its seed and number, or given."""

import random
from dataclasses import dataclass, replace

from tests.soak.actions.priorities import Preemption
from tests.soak.cluster.binding_faults import LOST_BINDINGS
from tests.support.trouble import Rates

from parley.api.models import Hold

CALM = Rates()
"""No trouble."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a world is like. By default one controller without a Lease, with a good network and other clients that
    meddle, but no feature that only some worlds have."""

    lease: bool = False
    """Two controllers (and two copies of a standalone driver) with a Lease, instead of one without."""
    network_faults: Rates = CALM
    """Trouble of the network between Parley and the API server."""
    allocation_faults: float = 0.0
    """Part of the allocations that fail or take a moment."""
    interference: bool = True
    """Other clients clear and delete Parley's objects, and administrators make mistakes."""
    extender: float = 0.0
    """Part of the pods (0 to 1) that name the second scheduler, and so take the extender path."""
    binding_faults: Rates = CALM
    """Trouble of the schedulers with the requests that bind pods."""
    hostile_tenant: bool = False
    """A hostile tenant edits the namespace."""
    kept_claims: bool = False
    """Some classes keep claims without users (`whenUnused`)."""
    preemption: Preemption = Preemption.NONE
    """Priorities of pods, and preemption for claims."""
    node_data: bool = False
    """Pods leave data on nodes for named claims."""
    reserved_room: Hold | None = None
    """Named claims reserve room on their nodes, held in the ledger or by reservation pods."""
    room_yields: bool = False
    """Reserved room yields to pods of one class."""
    views: bool = False
    """Some allocations need another claim to be allocated (`Driver.uses`)."""
    recreated_objects: bool = False
    """Nodes, classes and claims are replaced at once by others of the same names, and others hold pods and claims
    by finalizers."""
    immediate_claims: bool = False
    """Some claims are immediate."""
    on_demand: bool = False
    """Some claims are created on demand."""
    class_limits: bool = False
    """Classes have limits."""
    parameter_references: bool = False
    """Some parameters are in a ConfigMap."""
    tokens: bool = False
    """Pods want tokens of a second driver."""
    misbehaving_driver: bool = False
    """The driver misbehaves."""
    slow_kubelets: bool = False
    """Kubelets take their time to start pods."""
    orphaned_pods: bool = False
    """Pods of nodes that are gone stay until they are collected."""
    stranded_claims: bool = False
    """Claims whose node takes no pods fail or start over (`Driver.stranded`)."""
    propagation_policies: bool = False
    """Pods and claims are also deleted in the foreground, or without what they own, and the garbage collector is
    slow."""
    component_watch_lag: bool = False
    """The informers of Kubernetes' own components are behind now and then."""
    standalone: bool = False
    """A standalone driver serves some classes."""
    standalone_external_state: bool = False
    """The standalone driver takes its time, and has what it holds outside of its process."""
    no_execute_taints: bool = False
    """Nodes get NoExecute taints."""
    full_nodes: bool = False
    """Pods with priorities fill their nodes, and are bound slowly."""
    parley_watch_lag: bool = False
    """Parley's watches of some kinds are far behind its watches of others."""
    clock_jumps: bool = False
    """The wall clocks of Parley's machines are set."""
    compared_with_successors: bool = True
    """At rest the leader's memory is compared with what another controller would restore."""

    @classmethod
    def drawn(cls, chance: random.Random, number: int) -> "Plan":
        """The plan of world `number`.

        Half of the worlds have trouble with the network, a third two controllers; three of five use the extender
        path. In every third schedulers do not get the responses to all bindings, in every fourth there is a
        hostile tenant, in two of seven some claims are kept without users, and in one of these pods leave data. In
        two of seven, as far as they have no priorities, claims reserve room, which yields in half of them, and in
        two others some allocations need another one. Every eleventh world has a random mix (`together`).
        """
        hold = _hold(number) if Preemption.of_world(number) is Preemption.NONE else None
        drawn = cls(
            lease=chance.random() < 0.33,
            network_faults=Rates.bad() if chance.random() < 0.5 else CALM,
            allocation_faults=0.05 if chance.random() < 0.3 else 0.0,
            extender=chance.choice([0.0, 0.0, 0.5, 0.5, 1.0]),
            binding_faults=LOST_BINDINGS if number % 3 == 1 else CALM,
            hostile_tenant=number % 4 == 2,
            kept_claims=number % 7 < 2,
            preemption=Preemption.of_world(number),
            node_data=number % 7 == 1,
            reserved_room=hold,
            room_yields=hold is not None and number // 7 % 2 == 1,
            views=number % 7 in (3, 5) and Preemption.of_world(number) is Preemption.NONE,
            class_limits=number % 5 == 1 and number % 4 != 2,
            parameter_references=number % 10 in (4, 6),
            tokens=number % 10 in (1, 9),
            misbehaving_driver=number % 6 in (3, 4),
            slow_kubelets=number % 5 in (2, 4),
            orphaned_pods=number % 3 == 2,
            stranded_claims=number % 4 == 3 or number % 11 == 8,
            propagation_policies=number % 8 == 5 or number % 22 == 8,
            component_watch_lag=number % 9 in (1, 5),
        )
        return drawn.together(chance) if number % 11 == 8 else drawn

    def with_standalone(self, chance: random.Random) -> "Plan":
        """The same, with a standalone driver in some worlds, fewer of those with priorities. `chance` is not the
        generator that draws the rest, so that the rest stays as it would be without."""
        share = 0.6 if self.preemption is Preemption.NONE else 0.3
        return replace(self, standalone=chance.random() < share, standalone_external_state=chance.random() < 0.5)

    def with_later(self, chance: random.Random) -> "Plan":
        """The same, in some worlds with what was added to the soak last. `chance` is again a generator of its
        own."""
        taints, full_nodes, watch_lag, clock_jumps = (chance.random() < share for share in (0.25, 0.3, 0.25, 0.25))
        return replace(
            self,
            no_execute_taints=taints,
            full_nodes=full_nodes,
            parley_watch_lag=watch_lag,
            clock_jumps=clock_jumps,
        )

    def together(self, chance: random.Random) -> "Plan":
        """The same, with a random mix of the features that only worlds of their own have otherwise."""
        holds: list[Hold | None] = [None, "Ledger", "Nominated"]
        hold = chance.choice(holds)
        return replace(
            self,
            preemption=Preemption.NONE,
            kept_claims=chance.random() < 0.7,
            node_data=chance.random() < 0.5,
            reserved_room=hold,
            room_yields=hold is not None and chance.random() < 0.5,
            views=chance.random() < 0.4,
            recreated_objects=chance.random() < 0.7,
            immediate_claims=chance.random() < 0.7,
            on_demand=chance.random() < 0.7,
            class_limits=chance.random() < 0.4 and not self.hostile_tenant,
            parameter_references=chance.random() < 0.4,
            tokens=chance.random() < 0.4,
        )


def _hold(number: int) -> Hold | None:
    """How claims of world `number` reserve room on their nodes, None if they do not."""
    holds: dict[int, Hold] = {0: "Ledger", 4: "Nominated"}
    return holds.get(number % 7)
