"""Messages about evictions, for users: they name only pods of the user's own namespace."""

from collections.abc import Sequence

from parley.api.builtin import Pod
from parley.api.wording import counted, listed, noun_for
from parley.control.claims.podclaims import PodClaim
from parley.control.objects.pod import path_of
from parley.scheduler.claim_victims import Plan

_SHOWN = 3


def described(pod: Pod, victim: Pod) -> str:
    """The victim in a message to the pod's user, named only if it is in the same namespace."""
    return f"Pod {path_of(victim)}" if victim.metadata.namespace == pod.metadata.namespace else "A pod elsewhere"


def victims_of(pod: Pod, plan: Plan) -> str:
    """The plan's pods in a message to the pod's user, named only if they are in the same namespace."""
    own = [path_of(victim) for victim in plan.victims if victim.metadata.namespace == pod.metadata.namespace]
    others, found = len(plan.victims) - len(own), []
    if own:
        found.append(f"{noun_for(len(own), 'pod')} {listed(own, _SHOWN)}")
    if others:
        found.append(f"{counted(others, 'pod')} of other namespaces")
    parts = [f"{' and '.join(found)} of lower priority evicted"] if found else []
    if plan.terminating:
        parts.append(f"{counted(len(plan.terminating), 'pod')} terminating")
    return ", ".join(parts)


def eviction_forbidden(claims: Sequence[PodClaim]) -> str:
    """The message if Parley's account may not evict pods, with the remedy for the first of the classes that ask
    for it."""
    names = [c.class_name for c in claims if c.class_ is not None and c.class_.preemption == "LowerPriority"]
    return (
        "No pod could be evicted for it: Parley's account lacks the right to create pods/eviction. Install the "
        f"chart with preemption.enabled=true, or change preemption of class {names[0]} to Never"
    )
