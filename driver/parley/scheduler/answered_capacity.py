"""What standalone drivers have for further pods with the same claims, by their latest answers. In memory.

An answer may say for how many such pods there is enough on a node. For so many of them the node is selected
without a question, which saves two writes and the time in between. So of many pods that come at once a few are
asked about, and the others wait for these answers for a moment. Nothing depends on it: a driver allocates on the
selected node or fails, as ever.
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
"""So long an answer says something about other pods."""

HOLD_SECONDS = 5.0
"""So long after the latest question pods wait for an answer to it."""

MOST_ASKED = 4
"""About so many pods with the same claims a driver is asked at a time, before others wait for the answers."""

_TIE = 1e-4


@dataclass(slots=True)
class _Answer:
    """For how many pods there is enough left in all and on each node, for how many that was selected, the driver's
    scores, and until when that counts. Nodes may share what the driver has."""

    total: int
    left: dict[str, int]
    selected: Counter[str]
    scores: Mapping[str, float]
    until: float

    @property
    def is_half_used(self) -> bool:
        """Whether it is time for another answer."""
        return self.total < self.selected.total()


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Grouped(Generic[K, V]):
    """A value for each pod, to be looked up by what pods ask for. Empty groups are not kept."""

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
        """Idempotent."""
        if pod in self._wanted:
            wanted = self._wanted.pop(pod)
            del self._groups[wanted][pod]
            if not self._groups[wanted]:
                del self._groups[wanted]

    def of(self, wanted: Hashable) -> Mapping[K, V]:
        """The values for all that ask for it."""
        return self._groups.get(wanted, {})


class AnsweredCapacity:
    """For how many more pods nodes have enough, by the latest answers of standalone drivers, and which pods wait
    for one. Kept for each `wanted`, which is `Demand.alike_standalone`. Times are on the event loop's clock, in
    seconds."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        """The latest one last."""
        self._tells: dict[str, bool] = {}
        """Whether a driver's latest answer with viable nodes said for how many pods they are enough."""
        self._unanswered: _Grouped[str, float] = _Grouped()
        """When the driver was asked about each pod, by UID, until it answers."""
        self._held: _Grouped[Key, Place] = _Grouped()
        self._selected: _Grouped[str, tuple[PodReference, str]] = _Grouped()
        """The node that was selected for each pod, by UID, until its claims are allocated there."""
        self._waiting: _Grouped[str, None] = _Grouped()
        """The UIDs of pods that no node is viable for."""

    def nodes(self, wanted: Hashable, now: float) -> list[str]:
        """Where there is enough for another pod; none as long as one that came before waits for the same, nor for
        one that the driver is to be asked about so that there is another answer in time."""
        found = self._answers.get(wanted)
        if found is None or found.until <= now or found.total <= 0 or self._waiting.of(wanted):
            return []
        if found.is_half_used and not self._unanswered.of(wanted):
            return []
        return [node for node, count in found.left.items() if count > 0]

    def not_full(self, wanted: Hashable, viable: Sequence[str]) -> tuple[str, ...]:
        """Of a pod's viable nodes those that were not selected for others since, as far as that is known; all of
        them if that leaves none."""
        found = self._answers.get(wanted)
        left = tuple(node for node in viable if found is None or found.left.get(node, 1) > 0)
        return left or tuple(viable)

    def scores(self, wanted: Hashable) -> Mapping[str, float]:
        """The driver's preferences among these nodes, from 0 to 1."""
        found = self._answers.get(wanted)
        return found.scores if found is not None else {}

    def tie_breaking(self, wanted: Hashable, scores: Mapping[str, float]) -> dict[str, float]:
        """A driver's scores, a little higher where nodes were selected since: a driver that packs would say so."""
        found = self._answers.get(wanted)
        if found is None:
            return dict(scores)
        return {node: score + _TIE * found.selected[node] for node, score in scores.items()}

    def hold(self, key: Key, place: Place, wanted: Hashable, driver: str, now: float) -> float:
        """For how many seconds the pod is to wait for an answer for another one. `answered` returns its key."""
        asked = self._unanswered.of(wanted)
        enough = len(asked) >= (1 if driver in self._tells else MOST_ASKED)
        if self._waiting.of(wanted) or not enough or not self._tells.get(driver, True):
            return 0.0
        left = max(asked.values()) + HOLD_SECONDS - now
        if left > 0:
            self._held.put(key, wanted, place)
        return left

    def asked(self, pod_uid: str, wanted: Hashable, now: float) -> None:
        """The driver is asked about the pod."""
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
        """The driver has answered, with viable nodes. It did not know of pods whose node was selected and whose
        claims are not allocated yet. Returns the pods that wait for that and are to be looked at."""
        self._unanswered.drop(pod_uid)
        if capacity or pod_uid not in self._waiting:  # for one that waited it is of no use
            self._tells[driver] = bool(capacity)
        while self._answers and next(iter(self._answers.values())).until <= now:
            self._answers.popitem(last=False)
        self._answers.pop(wanted, None)
        selected = Counter(
            node for pod, node in self._selected.of(wanted).values() if not self._ledger.of_pod(pod)
        )
        left = {node: max(count - selected[node], 0) for node, count in capacity.items()}
        total = max(sum(capacity.values()) - selected.total(), 0)
        self._answers[wanted] = _Answer(total, left, selected, scores, now + FRESH_SECONDS)
        return self._let_go(wanted, 1 + total if capacity else None)

    def _let_go(self, wanted: Hashable, most: int | None = None) -> list[Key]:
        """The first ones of those that are held."""
        held = self._held.of(wanted)
        first = sorted(held, key=held.__getitem__)[:most]
        for key in first:
            self._held.drop(key)
        return first

    def selected(self, pod: PodReference, wanted: Hashable, node: str) -> None:
        """The node is selected for the pod, with or without a question."""
        self.ended(pod.uid)
        self._selected.put(pod.uid, wanted, (pod, node))
        found = self._answers.get(wanted)
        if found is not None:
            found.total -= 1
            found.selected[node] += 1
            if node in found.left:
                found.left[node] = max(found.left[node] - 1, 0)

    def failed(self, wanted: Hashable, node: str) -> None:
        """The driver could not allocate on a selected node: there is less than its answer said."""
        found = self._answers.get(wanted)
        if found is not None and node in found.left:
            found.left[node] = 0

    def waits(self, pod_uid: str, wanted: Hashable) -> list[Key]:
        """No node is viable for the pod. Returns the pods that are to be asked about now, too."""
        self.ended(pod_uid)
        self._waiting.put(pod_uid, wanted, None)
        return self._let_go(wanted)

    def ended(self, pod_uid: str) -> None:
        """The pod's claims are allocated, or it waits for no driver any more. Idempotent."""
        self._unanswered.drop(pod_uid)
        self._selected.drop(pod_uid)
        self._waiting.drop(pod_uid)

    def gone(self, key: Key) -> None:
        """The pod is not there any more, or asked about."""
        self._held.drop(key)
