"""What pods request that name a claim and have no node yet, summed up by claim, pod by pod.

A tenant may have a thousand such pods, each of which names hundreds of claims, and everybody's pods are judged
beside these sums. So a pod that comes or goes costs as much as it names claims, and a look at a sum costs the same
however many pods there are.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from parley.api.builtin import Pod
from parley.control.caches.indexes import awaiting_node
from parley.kube.cache import Key
from parley.negotiation.requests import Amounts, requested
from parley.negotiation.reservations import A_POD


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one pod requests, in thousandths, and the claims that it names."""

    claims: Sequence[Key]
    amounts: Amounts


@dataclass(slots=True)
class _Sum:
    """By resource name, of those alone that were asked for; and how many pods name the claim."""

    amounts: dict[str, int]
    pods: int = 0


class AwaitedAmounts:
    """The sums of the claims that were asked for. `pods` are those that await a node and name a claim, `counts`
    tells of a pod, by UID, whether it counts for a node already: its requests are left out then."""

    def __init__(self, pods: Callable[[Key], Iterable[Pod]], counts: Callable[[str], bool]) -> None:
        self._pods = pods
        self._counts = counts
        self._sums: dict[Key, _Sum] = {}
        self._asked: dict[str, _Asked] = {}
        """By UID, of the pods that name any of these claims."""
        self._summed: set[str] = set()

    def of(self, claim: Key, names: Collection[str]) -> Amounts:
        """What those that name the claim request of these resources."""
        known = self._sums.get(claim)
        if known is None or not known.amounts.keys() >= set(names):
            known = self._sum_up(claim, names)
        return {name: known.amounts[name] for name in names}

    def _sum_up(self, claim: Key, names: Collection[str]) -> _Sum:
        found = _Sum(dict.fromkeys(names, 0))
        for pod in self._pods(claim):
            uid = pod.metadata.uid
            if uid not in self._asked:
                self._asked[uid] = _asked(pod)
                if not self._counts(uid):
                    self._summed.add(uid)
            found.pods += 1
            if uid in self._summed:
                _add(found, self._asked[uid], 1)
        if found.pods:
            self._sums[claim] = found
        return found

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed, or is gone (None)."""
        if old is not None:
            self._forget(old.metadata.uid)
        if new is not None and any(claim in self._sums for claim in awaiting_node(new)):
            self._asked[new.metadata.uid] = asked = _asked(new)
            for found in self._found(asked):
                found.pods += 1
            self.counted(new.metadata.uid)

    def _forget(self, uid: str) -> None:
        asked = self._asked.get(uid)
        if asked is None:
            return
        self._put(uid, summed=False)
        del self._asked[uid]
        for claim in asked.claims:
            if (found := self._sums.get(claim)) is not None:
                found.pods -= 1
                if not found.pods:
                    del self._sums[claim]

    def counted(self, uid: str) -> None:
        """The pod of that UID counts for a node, or does no more."""
        self._put(uid, summed=uid in self._asked and not self._counts(uid))

    def _put(self, uid: str, *, summed: bool) -> None:
        if summed == (uid in self._summed):
            return
        for found in self._found(self._asked[uid]):
            _add(found, self._asked[uid], 1 if summed else -1)
        (self._summed.add if summed else self._summed.discard)(uid)

    def _found(self, asked: _Asked) -> Iterable[_Sum]:
        return [self._sums[claim] for claim in asked.claims if claim in self._sums]


def _asked(pod: Pod) -> _Asked:
    claims = list(dict.fromkeys(awaiting_node(pod)))
    return _Asked(claims, {**requested(pod), **A_POD})


def _add(found: _Sum, asked: _Asked, times: int) -> None:
    for name in found.amounts:
        found.amounts[name] += times * asked.amounts.get(name, 0)
