"""How much standalone drivers have for further pods with the same claims, by their latest answers. In memory.

An answer may say how many such pods a node has enough for. For so many of them the node is selected without
asking, which saves two writes and the time in between. Therefore, of many pods created at once, a few are asked
about, and the others wait a moment for these answers. A driver may still fail to allocate on the selected node.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from parley.control.ledger import Ledger
from parley.kube.cache import Key
from parley.negotiation.waiting import Place
from parley.sdk import PodReference

FRESH_SECONDS = 10.0
"""How long an answer counts for other pods."""

HOLD_SECONDS = 5.0
"""How long pods wait for an answer after the latest question."""

MAX_LINES_ASKED = 4
"""How many pods with the same claims a driver is asked about at a time, roughly; others wait for the answers."""

_TIE = 1e-4


@dataclass(slots=True)
class _Answer:
    """For how many pods enough is `left` in `total` and on each node, how often each node was selected since, the
    driver's scores, and until when the answer counts. Nodes may share what the driver has."""

    total: int
    left: dict[str, int]
    selected: Counter[str]
    scores: Mapping[str, float]
    until: float

    @property
    def is_half_used(self) -> bool:
        """Whether half of the capacity is used, so that it is time for another answer."""
        return self.total < self.selected.total()


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Grouped(Generic[K, V]):
    """Values by pod, grouped by what the pods want. Empty groups are not kept."""

    def __init__(self) -> None:
        self._wanted: dict[K, Hashable] = {}
        self._groups: dict[Hashable, dict[K, V]] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, pod: K) -> bool:
        return pod in self._wanted

    def put(self, pod: K, wanted: Hashable, value: V) -> None:
        self.drop(pod)
        self._wanted[pod] = wanted
        self._groups.setdefault(wanted, {})[pod] = value

    def drop(self, pod: K) -> None:
        """Remove the pod's value. Idempotent."""
        if pod in self._wanted:
            wanted = self._wanted.pop(pod)
            del self._groups[wanted][pod]
            if not self._groups[wanted]:
                del self._groups[wanted]

    def of(self, wanted: Hashable) -> Mapping[K, V]:
        """The values of all pods that want the same, by pod."""
        return self._groups.get(wanted, {})


class AnsweredCapacity:
    """Tracks for how many more pods nodes have enough, by standalone drivers' latest answers, and which pods wait
    for one. Everything is kept by `wanted`, which is `Demand.standalone_equivalence_key`. Times are on the event
    loop's clock, in seconds."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        """The latest answer comes last."""
        self._reports_capacity: dict[str, bool] = {}
        """Whether a driver's latest answer with viable nodes contained capacities."""
        self._unanswered: _Grouped[str, float] = _Grouped()
        """The time when the driver was asked about each pod, by UID, until it answers."""
        self._held: _Grouped[Key, Place] = _Grouped()
        self._selected: _Grouped[str, tuple[PodReference, str]] = _Grouped()
        """The node that was selected for each pod, by UID, until its claims are allocated there."""
        self._waiting: _Grouped[str, None] = _Grouped()
        """The UIDs of pods for which no node is viable."""

    def nodes(self, wanted: Hashable, now: float) -> list[str]:
        """The nodes with enough for another pod. Empty while another pod waits for the same, and if the driver is
        to be asked about this pod, so that the next answer comes in time."""
        found = self._answers.get(wanted)
        if found is None or found.until <= now or found.total <= 0 or self._waiting.of(wanted):
            return []
        if found.is_half_used and not self._unanswered.of(wanted):
            return []
        return [node for node, count in found.left.items() if count > 0]

    def not_full(self, wanted: Hashable, viable: Sequence[str]) -> tuple[str, ...]:
        """The viable nodes without those that are full by what was selected for other pods since, as far as is
        known; all of them if none would be left."""
        found = self._answers.get(wanted)
        left = tuple(node for node in viable if found is None or found.left.get(node, 1) > 0)
        return left or tuple(viable)

    def scores(self, wanted: Hashable) -> Mapping[str, float]:
        """The driver's preferences among nodes, from 0 to 1."""
        found = self._answers.get(wanted)
        return found.scores if found is not None else {}

    def tie_breaking(self, wanted: Hashable, scores: Mapping[str, float]) -> dict[str, float]:
        """A driver's scores, slightly higher for nodes selected since, as those of a driver that packs would
        be."""
        found = self._answers.get(wanted)
        if found is None:
            return dict(scores)
        return {node: score + _TIE * found.selected[node] for node, score in scores.items()}

    def hold(self, key: Key, place: Place, wanted: Hashable, driver: str, now: float) -> float:
        """How many seconds the pod has to wait for another pod's answer; `answered` then returns its key."""
        asked = self._unanswered.of(wanted)
        enough = len(asked) >= (1 if driver in self._reports_capacity else MAX_LINES_ASKED)
        if self._waiting.of(wanted) or not enough or not self._reports_capacity.get(driver, True):
            return 0.0
        left = max(asked.values()) + HOLD_SECONDS - now
        if left > 0:
            self._held.put(key, wanted, place)
        return left

    def asked(self, pod_uid: str, wanted: Hashable, now: float) -> None:
        """Note that the driver is asked about the pod."""
        self.ended(pod_uid)
        self._unanswered.put(pod_uid, wanted, now)

    def answered(
        self,
        pod_uid: str,
        wanted: Hashable,
        driver: str,
        capacity: Mapping[str, int],
        scores: Mapping[str, float],
        now: float,
    ) -> list[Key]:
        """Record the driver's answer, which has viable nodes. The driver did not know of pods whose node is
        selected and whose claims are not allocated yet. Returns the keys of the waiting pods to requeue."""
        self._unanswered.drop(pod_uid)
        if capacity or pod_uid not in self._waiting:  # an answer for a pod that waited says nothing about it
            self._reports_capacity[driver] = bool(capacity)
        while self._answers and next(iter(self._answers.values())).until <= now:
            self._answers.popitem(last=False)
        self._answers.pop(wanted, None)
        selected = Counter(
            node for pod, node in self._selected.of(wanted).values() if not self._ledger.of_pod(pod)
        )
        left = {node: max(count - selected[node], 0) for node, count in capacity.items()}
        total = max(sum(capacity.values()) - selected.total(), 0)
        self._answers[wanted] = _Answer(total, left, selected, scores, now + FRESH_SECONDS)
        return self._stop_holding(wanted, 1 + total if capacity else None)

    def _stop_holding(self, wanted: Hashable, most: int | None = None) -> list[Key]:
        """Stop holding the first pods in order of their places, at most so many; returns their keys."""
        held = self._held.of(wanted)
        first = sorted(held, key=held.__getitem__)[:most]
        for key in first:
            self._held.drop(key)
        return first

    def selected(self, pod: PodReference, wanted: Hashable, node: str) -> None:
        """Note that the node was selected for the pod, with or without asking its driver."""
        self.ended(pod.uid)
        self._selected.put(pod.uid, wanted, (pod, node))
        found = self._answers.get(wanted)
        if found is not None:
            found.total -= 1
            found.selected[node] += 1
            if node in found.left:
                found.left[node] = max(found.left[node] - 1, 0)

    def failed(self, wanted: Hashable, node: str) -> None:
        """Note that the driver could not allocate on a selected node, which has less than its answer said."""
        found = self._answers.get(wanted)
        if found is not None and node in found.left:
            found.left[node] = 0

    def none_viable(self, pod_uid: str, wanted: Hashable) -> list[Key]:
        """Note that no node is viable for the pod. Returns the held pods, which have to be asked about now."""
        self.ended(pod_uid)
        self._waiting.put(pod_uid, wanted, None)
        return self._stop_holding(wanted)

    def ended(self, pod_uid: str) -> None:
        """Note that the pod's claims are allocated, or that it waits for no driver any more. Idempotent."""
        self._unanswered.drop(pod_uid)
        self._selected.drop(pod_uid)
        self._waiting.drop(pod_uid)

    def stop_holding(self, key: Key) -> None:
        """Stop holding the pod, which is gone or asked about."""
        self._held.drop(key)
