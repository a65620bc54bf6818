"""What standalone drivers have for further pods with the same claims, by their latest answers. In memory.

An answer may say for how many such pods there is enough on a node. For so many of them the node is selected
without a question, which saves two writes and the time in between. So of many pods that come at once a few are
asked about, and the others wait for these answers for a moment. Nothing depends on it: a driver allocates on the
selected node or fails, as ever.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.control.caches.indexes import Key
from parley.control.ledger import Ledger
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


class AnsweredCapacity:
    """By what pods ask for: `wanted` is `Demand.alike_standalone`. Times are on the event loop's clock."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        """The latest one last."""
        self._tells: dict[str, bool] = {}
        """Whether a driver's latest answer with viable nodes said for how many pods they are enough."""
        self._asked: dict[str, Hashable] = {}
        self._unanswered: defaultdict[Hashable, dict[str, float]] = defaultdict(dict)
        """What each pod asks for that has no answer yet, by UID; and since when, for all that ask for the same."""
        self._held: defaultdict[Hashable, dict[Key, Place]] = defaultdict(dict)
        self._selected: dict[str, Hashable] = {}
        self._nodes: defaultdict[Hashable, dict[str, tuple[PodReference, str]]] = defaultdict(dict)
        """What each pod asks for that has a node, by UID; and these nodes, for all that ask for the same."""
        self._waiting: dict[str, Hashable] = {}
        self._wait_for: Counter[Hashable] = Counter()
        """What each pod asks for that no node is viable for, by UID; and how many do."""

    def nodes(self, wanted: Hashable, now: float) -> list[str]:
        """Where there is enough for another pod; none as long as one that came before waits for the same, nor for
        one that the driver is to be asked about so that there is another answer in time."""
        found = self._answers.get(wanted)
        if found is None or found.until <= now or found.total <= 0 or wanted in self._wait_for:
            return []
        if found.is_half_used and wanted not in self._unanswered:
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
        asked = self._unanswered.get(wanted, {})
        enough = len(asked) >= (1 if driver in self._tells else MOST_ASKED)
        if wanted in self._wait_for or not enough or not self._tells.get(driver, True):
            return 0.0
        left = max(asked.values()) + HOLD_SECONDS - now
        if left > 0:
            self._held[wanted][key] = place
        return left

    def asked(self, pod_uid: str, wanted: Hashable, now: float) -> None:
        """The driver is asked about the pod."""
        self.ended(pod_uid)
        self._asked[pod_uid] = wanted
        self._unanswered[wanted][pod_uid] = now

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
        self._answer_came(pod_uid)
        if capacity or pod_uid not in self._waiting:  # for one that waited it is of no use
            self._tells[driver] = bool(capacity)
        while self._answers and next(iter(self._answers.values())).until <= now:
            self._answers.popitem(last=False)
        self._answers.pop(wanted, None)
        selected = Counter(
            node for pod, node in self._nodes.get(wanted, {}).values() if not self._ledger.of_pod(pod)
        )
        left = {node: max(count - selected[node], 0) for node, count in capacity.items()}
        total = max(sum(capacity.values()) - selected.total(), 0)
        self._answers[wanted] = _Answer(total, left, selected, scores, now + FRESH_SECONDS)
        return self._let_go(wanted, 1 + total if capacity else None)

    def _let_go(self, wanted: Hashable, most: int | None = None) -> list[Key]:
        """The first ones of those that are held."""
        held = self._held.pop(wanted, {})
        first = sorted(held, key=held.__getitem__)[:most]
        if left := {key: place for key, place in held.items() if key not in frozenset(first)}:
            self._held[wanted] = left
        return first

    def selected(self, pod: PodReference, wanted: Hashable, node: str) -> None:
        """The node is selected for the pod, with or without a question."""
        self.ended(pod.uid)
        self._selected[pod.uid] = wanted
        self._nodes[wanted][pod.uid] = pod, node
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
        self._waiting[pod_uid] = wanted
        self._wait_for[wanted] += 1
        return self._let_go(wanted)

    def ended(self, pod_uid: str) -> None:
        """The pod's claims are allocated, or it waits for no driver any more. Idempotent."""
        self._answer_came(pod_uid)
        wanted = self._selected.pop(pod_uid, None)
        if (nodes := self._nodes.get(wanted)) is not None:
            nodes.pop(pod_uid, None)
            if not nodes:
                del self._nodes[wanted]
        if pod_uid in self._waiting:
            _decrease(self._wait_for, self._waiting.pop(pod_uid))

    def _answer_came(self, pod_uid: str) -> None:
        wanted = self._asked.pop(pod_uid, None)
        if (asked := self._unanswered.get(wanted)) is not None:
            asked.pop(pod_uid, None)
            if not asked:
                del self._unanswered[wanted]

    def gone(self, key: Key) -> None:
        """The pod is not there any more, or asked about."""
        for wanted in [wanted for wanted, held in self._held.items() if key in held]:
            del self._held[wanted][key]
            if not self._held[wanted]:
                del self._held[wanted]


def _decrease(counter: Counter[Any], key: Any) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
