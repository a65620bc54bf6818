"""Evictions: whether PodDisruptionBudgets allow one, and the budget's status afterwards.

A budget's status is used as stored: healthy pods, which the kube-controller-manager counts, are not counted here.
Source: pkg/registry/core/pod/storage/eviction.go (1.37).
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from parley.api.builtin import LabelSelector
from parley.api.resources import Resource
from parley.api.selectors import selects
from parley.kube.memory.errors import budget_exceeded, several_budgets

Json = dict[str, Any]

BUDGETS: Resource[Any] = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True, type=dict
)

_PHASES_WITHOUT_BUDGET = frozenset({"Pending", "Succeeded", "Failed"})


def budget_for(pod: Json, budgets: Iterable[Json]) -> Json | None:
    """The budget, among those of the pod's namespace, that an eviction counts against; None if it needs none.

    Raises ServerError if several apply, TooManyRequests if the budget allows no disruption.
    """
    if pod.get("status", {}).get("phase") in _PHASES_WITHOUT_BUDGET or pod["metadata"].get("deletionTimestamp"):
        return None
    found = [budget for budget in budgets if _selects(budget, pod)]
    if len(found) > 1:
        raise several_budgets()
    if not found or _is_evictable_unready(found[0], pod):
        return None
    status = found[0].get("status", {})
    processed = status.get("observedGeneration", 0) >= found[0]["metadata"].get("generation", 0)
    if not processed or status.get("disruptionsAllowed", 0) <= 0:
        raise budget_exceeded()
    return found[0]


def taken_from(budget: Json, pod: str, now: str) -> Json:
    """The budget after the eviction of the pod of that name."""
    status = budget["status"]
    left = {
        **status,
        "disruptionsAllowed": status["disruptionsAllowed"] - 1,
        "disruptedPods": {**status.get("disruptedPods", {}), pod: now},
    }
    return {**budget, "status": left}


def _selects(budget: Json, pod: Json) -> bool:
    """As in `policy/v1`: an empty selector selects all pods, a missing one none."""
    selector = budget.get("spec", {}).get("selector")
    if selector is None:
        return False
    return selects(msgspec.convert(selector, LabelSelector), pod["metadata"].get("labels") or {})


def _is_evictable_unready(budget: Json, pod: Json) -> bool:
    """Whether the pod is not ready and the budget is met without it, or always allows to evict unready pods."""
    conditions = pod.get("status", {}).get("conditions", [])
    if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
        return False
    status = budget.get("status", {})
    always = budget.get("spec", {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return always or bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)
