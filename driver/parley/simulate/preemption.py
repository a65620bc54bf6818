"""Preemption in the simulated kube-scheduler: who would have to go for a pod, and who does.

Only nodes are looked at that were refused for what might change if pods went. As upstream an extender may strike
nodes off; of what is left the node is chosen whose most important victim matters least, then the one with the
fewest victims. What it leaves out: disruption budgets, groups of pods, and that nominated pods keep their place.
Source: framework/preemption and plugins/defaultpreemption of Kubernetes 1.37.
"""

from collections.abc import Iterable, Mapping, Sequence

from parley.api.resources import PODS
from parley.kube.client import Client, Conflict, NotFound
from parley.negotiation.fit import needs_of
from parley.simulate.anti_affinity import Pod
from parley.simulate.extender_calls import ExtenderCalls, ExtenderFailed
from parley.simulate.node_table import NodeTable, Occupied
from parley.simulate.placement import in_tree_misfit, keeping_apart


async def preempt(
    client: Client, calls: ExtenderCalls | None, pod: Pod, table: NodeTable, nodes: Iterable[str]
) -> str | None:
    """Evict others for the pod on one of the nodes.

    Returns the node to nominate, "" for none, None to leave the nomination as it is.
    """
    if pod.spec.preemption_policy == "Never" or _waits_for_victims(pod, table):
        return None
    candidates = {node: victims for node in nodes if (victims := victims_on(pod, table[node]))}
    if not candidates:
        return ""
    left: Mapping[str, Sequence[str]] = {n: [v.metadata.uid for v in vs] for n, vs in candidates.items()}
    try:
        left = await calls.preempt(pod, left) if calls is not None else left
    except ExtenderFailed:
        return ""  # upstream logs it
    chosen = _choice({node: _named(candidates[node], uids) for node, uids in left.items()})
    for victim in chosen[1]:
        await _evict(client, victim)
    return chosen[0]


def victims_on(pod: Pod, occupied: Occupied) -> Sequence[Pod]:
    """The less important pods without which the pod fits on the node, as few as possible; none if it can't."""
    weaker = sorted((p for p in occupied.pods if _priority(p) < _priority(pod)), key=_priority, reverse=True)
    staying = [p for p in occupied.pods if _priority(p) >= _priority(pod)]
    if not weaker or not _fits(pod, occupied, staying):
        return ()
    victims: list[Pod] = []
    for one in weaker:
        if _fits(pod, occupied, [*staying, one]):
            staying.append(one)
        else:
            victims.append(one)
    return victims


def _fits(pod: Pod, occupied: Occupied, staying: Sequence[Pod]) -> bool:
    then = Occupied(occupied.node, list(staying))
    forbidden = keeping_apart(pod, NodeTable({occupied.node.metadata.name: then}))
    return in_tree_misfit(needs_of(pod), then, forbidden) is None


def _waits_for_victims(pod: Pod, table: NodeTable) -> bool:
    """Whether pods that it had evicted are still on their way out."""
    nominated = table.get(pod.status.nominated_node_name)
    going = [p for p in nominated.pods if p.metadata.deletion_timestamp] if nominated else ()
    return any(_priority(p) < _priority(pod) for p in going)


def _choice(candidates: Mapping[str, Sequence[Pod]]) -> tuple[str, Sequence[Pod]]:
    def cost(node: str) -> tuple[int, int, str]:
        return max(_priority(victim) for victim in candidates[node]), len(candidates[node]), node

    node = min(candidates, key=cost, default="")
    return node, candidates.get(node, ())


def _named(victims: Sequence[Pod], uids: Iterable[str]) -> Sequence[Pod]:
    return [victim for victim in victims if victim.metadata.uid in set(uids)]


async def _evict(client: Client, victim: Pod) -> None:
    meta = victim.metadata
    try:
        await client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
    except (NotFound, Conflict):
        pass  # it went by itself


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0
