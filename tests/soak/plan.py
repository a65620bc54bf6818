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
    rates: Rates = CALM
    """Trouble of the network between Parley and the API server."""
    failing: float = 0.0
    """Part of the allocations that fail or take a moment."""
    meddling: bool = True
    """Other clients clear and delete Parley's objects, and administrators make mistakes."""
    extender: float = 0.0
    """Part of the pods (0 to 1) that name the second scheduler, and so take the extender path."""
    bindings: Rates = CALM
    """Trouble of the schedulers with the requests that bind pods."""
    tenant: bool = False
    """A hostile tenant edits the namespace."""
    lasting: bool = False
    """Some classes keep claims without users (`whenUnused`)."""
    preemption: Preemption = Preemption.NONE
    """Priorities of pods, and preemption for claims."""
    data: bool = False
    """Pods leave data on nodes for named claims."""
    reserving: Hold | None = None
    """Named claims reserve room on their nodes, held in the ledger or by reservation pods."""
    yielding: bool = False
    """Reserved room yields to pods of one class."""
    viewing: bool = False
    """Some allocations need another claim to be allocated (`Driver.uses`)."""
    replacing: bool = False
    """Nodes, classes and claims are replaced at once by others of the same names, and others hold pods and claims
    by finalizers."""
    standing: bool = False
    """Some claims are immediate."""
    on_demand: bool = False
    """Some claims are created on demand."""
    limiting: bool = False
    """Classes have limits."""
    referring: bool = False
    """Some parameters are in a ConfigMap."""
    tokens: bool = False
    """Pods want tokens of a second driver."""
    unruly: bool = False
    """The driver misbehaves."""
    slow: bool = False
    """Kubelets take their time to start pods."""
    lingering: bool = False
    """Pods of nodes that are gone stay until they are collected."""
    settling: bool = False
    """Claims whose node takes no pods fail or start over (`Driver.stranded`)."""
    cascading: bool = False
    """Pods and claims are also deleted in the foreground, or without what they own, and the garbage collector is
    slow."""
    behind: bool = False
    """The informers of Kubernetes' own components are behind now and then."""
    standalone: bool = False
    """A standalone driver serves some classes."""
    outside: bool = False
    """The standalone driver takes its time, and has what it holds outside of its process."""
    tainting: bool = False
    """Nodes get NoExecute taints."""
    crowded: bool = False
    """Pods with priorities fill their nodes, and are bound slowly."""
    lagging: bool = False
    """Parley's watches of some kinds are far behind its watches of others."""
    jumping: bool = False
    """The wall clocks of Parley's machines are set."""

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
            rates=Rates.bad() if chance.random() < 0.5 else CALM,
            failing=0.05 if chance.random() < 0.3 else 0.0,
            extender=chance.choice([0.0, 0.0, 0.5, 0.5, 1.0]),
            bindings=LOST_BINDINGS if number % 3 == 1 else CALM,
            tenant=number % 4 == 2,
            lasting=number % 7 < 2,
            preemption=Preemption.of_world(number),
            data=number % 7 == 1,
            reserving=hold,
            yielding=hold is not None and number // 7 % 2 == 1,
            viewing=number % 7 in (3, 5) and Preemption.of_world(number) is Preemption.NONE,
            limiting=number % 5 == 1 and number % 4 != 2,
            referring=number % 10 in (4, 6),
            tokens=number % 10 in (1, 9),
            unruly=number % 6 in (3, 4),
            slow=number % 5 in (2, 4),
            lingering=number % 3 == 2,
            settling=number % 4 == 3 or number % 11 == 8,
            cascading=number % 8 == 5 or number % 22 == 8,
            behind=number % 9 in (1, 5),
        )
        return drawn.together(chance) if number % 11 == 8 else drawn

    def with_standalone(self, chance: random.Random) -> "Plan":
        """The same, with a standalone driver in some worlds, fewer of those with priorities. `chance` is not the
        generator that draws the rest, so that the rest stays as it would be without."""
        share = 0.6 if self.preemption is Preemption.NONE else 0.3
        return replace(self, standalone=chance.random() < share, outside=chance.random() < 0.5)

    def with_later(self, chance: random.Random) -> "Plan":
        """The same, in some worlds with what was added to the soak last. `chance` is again a generator of its
        own."""
        tainting, crowded, lagging, jumping = (chance.random() < share for share in (0.25, 0.3, 0.25, 0.25))
        return replace(self, tainting=tainting, crowded=crowded, lagging=lagging, jumping=jumping)

    def together(self, chance: random.Random) -> "Plan":
        """The same, with a random mix of the features that only worlds of their own have otherwise."""
        holds: list[Hold | None] = [None, "Ledger", "Nominated"]
        hold = chance.choice(holds)
        return replace(
            self,
            preemption=Preemption.NONE,
            lasting=chance.random() < 0.7,
            data=chance.random() < 0.5,
            reserving=hold,
            yielding=hold is not None and chance.random() < 0.5,
            viewing=chance.random() < 0.4,
            replacing=chance.random() < 0.7,
            standing=chance.random() < 0.7,
            on_demand=chance.random() < 0.7,
            limiting=chance.random() < 0.4 and not self.tenant,
            referring=chance.random() < 0.4,
            tokens=chance.random() < 0.4,
        )


def _hold(number: int) -> Hold | None:
    """How claims of world `number` reserve room on their nodes, None if they do not."""
    holds: dict[int, Hold] = {0: "Ledger", 4: "Nominated"}
    return holds.get(number % 7)
