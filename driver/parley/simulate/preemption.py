"""Preemption in the simulated kube-scheduler: chooses a node and victims for a pod, and evicts them.

Only nodes that were rejected for resolvable reasons are considered. As upstream, an extender may remove candidate
nodes; of the others the node is chosen whose most important victim has the lowest priority, then the one with the
fewest victims. If none is left, the pod's nomination stays as it is. While its victims are terminating, a pod
evicts others again, also on other nodes, if its nominated node is rejected for another reason by then. Less
important pods lose their nomination for the node. A pod that is being bound by the same scheduler is not evicted:
its binding is cancelled. Left out: disruption budgets, groups of pods, and that nominated pods keep their place.
Source: framework/preemption and plugins/defaultpreemption of Kubernetes 1.37.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from parley.api.resources import PODS
from parley.kube.client import Client, NotFound
from parley.negotiation.fit import needs_of
from parley.simulate.anti_affinity import Pod
from parley.simulate.binding_cycle import BindingCycles
from parley.simulate.extender_calls import ExtenderCalls, ExtenderFailed
from parley.simulate.node_table import NodeInfo, NodeTable
from parley.simulate.placement import anti_affinity_labels, in_tree_misfit
from parley.simulate.status_writes import condition, patch_pod_by_name

DISRUPTION = "DisruptionTarget"
BY_SCHEDULER = "PreemptionByScheduler"


async def preempt(
    cycles: BindingCycles, calls: ExtenderCalls | None, pod: Pod, nodes: Iterable[str]
) -> str | None:
    """Evict others for the pod on one of the nodes.

    Returns the node to nominate, "" for none, None to leave the nomination as it is.
    """
    table, nodes = cycles.cache.nodes(), list(nodes)
    if pod.spec.preemption_policy == "Never" or _waits_for_victims(pod, table, nodes):
        return None
    candidates = {node: victims for node in nodes if (victims := victims_on(pod, table[node]))}
    if not candidates:
        return ""
    left: Mapping[str, Sequence[str]] = {n: [v.metadata.uid for v in vs] for n, vs in candidates.items()}
    try:
        left = await calls.preempt(pod, left) if calls is not None else left
    except ExtenderFailed:
        return None  # upstream logs the error
    chosen, victims = _choice({node: _named(candidates[node], uids) for node, uids in left.items()})
    if victims := [victim for victim in victims if not victim.metadata.deletion_timestamp]:
        for other in table.nominated_below(chosen, _priority(pod)):
            await patch_pod_by_name(cycles.client, other, {"nominatedNodeName": None})
    for victim in victims:
        if not cycles.in_prebind.cancel(victim):
            await _evict(cycles.client, victim)
    return chosen or None


def victims_on(pod: Pod, node_info: NodeInfo) -> Sequence[Pod]:
    """The fewest pods of lower priority without which the pod fits on the node; none if it does not fit then."""
    weaker = sorted((p for p in node_info.pods if _priority(p) < _priority(pod)), key=_priority, reverse=True)
    staying = [p for p in node_info.pods if _priority(p) >= _priority(pod)]
    if not weaker or not _fits(pod, node_info, staying):
        return ()
    victims: list[Pod] = []
    for one in weaker:
        if _fits(pod, node_info, [*staying, one]):
            staying.append(one)
        else:
            victims.append(one)
    return victims


def _fits(pod: Pod, node_info: NodeInfo, staying: Sequence[Pod]) -> bool:
    then = NodeInfo(node_info.node, list(staying))
    forbidden = anti_affinity_labels(pod, NodeTable({node_info.node.metadata.name: then}))
    return in_tree_misfit(needs_of(pod), then, forbidden) is None


def _waits_for_victims(pod: Pod, table: NodeTable, nodes: Collection[str]) -> bool:
    """Whether pods that a scheduler evicted are still terminating on the nominated node."""
    nominated = pod.status.nominated_node_name
    on_node = table[nominated].pods if nominated in table and nominated in nodes else ()
    return any(_priority(p) < _priority(pod) and _terminating_by_preemption(p) for p in on_node)


def _terminating_by_preemption(pod: Pod) -> bool:
    reasons = [condition.reason for condition in pod.status.conditions if condition.type == DISRUPTION]
    return bool(pod.metadata.deletion_timestamp) and reasons == [BY_SCHEDULER]


def _choice(candidates: Mapping[str, Sequence[Pod]]) -> tuple[str, Sequence[Pod]]:
    def cost(node: str) -> tuple[int, int, str]:
        return max(_priority(victim) for victim in candidates[node]), len(candidates[node]), node

    node = min(candidates, key=cost, default="")
    return node, candidates.get(node, ())


def _named(victims: Sequence[Pod], uids: Iterable[str]) -> Sequence[Pod]:
    return [victim for victim in victims if victim.metadata.uid in set(uids)]


async def _evict(client: Client, victim: Pod) -> None:
    """Evict the pod by name, without a precondition on its UID."""
    entry = condition(DISRUPTION, "True", BY_SCHEDULER, "preempting to accommodate a higher priority pod", "")
    await patch_pod_by_name(client, victim, {"conditions": [entry]})
    try:
        await client.delete(PODS, victim.metadata.name, victim.metadata.namespace)
    except NotFound:
        pass  # it was deleted meanwhile


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0
