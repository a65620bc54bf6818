"""Sums, by claim, of the requests of pods that name the claim and have no node yet; kept up to date pod by pod.

A tenant may have a thousand such pods, each of which names hundreds of claims, and the evaluation of all tenants'
pods needs these sums. So the cost of an added or deleted pod grows with the claims that it names, and reading a
sum costs the same however many pods there are.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from parley.api.builtin import Pod
from parley.control.caches.indexes import awaiting_node
from parley.kube.cache import Key
from parley.negotiation.requests import Amounts, requested
from parley.negotiation.reservations import A_POD


@dataclass(frozen=True, slots=True)
class _PodRequests:
    """The requests of one pod, in thousandths, and the claims that it names."""

    claims: Sequence[Key]
    amounts: Amounts


@dataclass(slots=True)
class _Sum:
    """The sum by resource name, of requested resources only; and the number of pods that name the claim."""

    amounts: dict[str, int]
    pods: int = 0


class AwaitedAmounts:
    """The sums of the claims that were asked for. `pods` returns the pods that await a node and name a claim,
    `counts` whether a pod, by UID, counts for a node already: its requests are left out then."""

    def __init__(self, pods: Callable[[Key], Iterable[Pod]], counts: Callable[[str], bool]) -> None:
        self._pods = pods
        self._counts = counts
        self._sums: dict[Key, _Sum] = {}
        self._requests: dict[str, _PodRequests] = {}
        """By UID: the pods that name any of these claims."""
        self._summed: set[str] = set()

    def of(self, claim: Key, names: Collection[str]) -> Amounts:
        """The sum of requests for these resources of the pods that name the claim and have no node."""
        known = self._sums.get(claim)
        if known is None or not known.amounts.keys() >= set(names):
            known = self._sum_up(claim, names)
        return {name: known.amounts[name] for name in names}

    def _sum_up(self, claim: Key, names: Collection[str]) -> _Sum:
        found = _Sum(dict.fromkeys(names, 0))
        for pod in self._pods(claim):
            uid = pod.metadata.uid
            if uid not in self._requests:
                self._requests[uid] = _requests(pod)
                if not self._counts(uid):
                    self._summed.add(uid)
            found.pods += 1
            if uid in self._summed:
                _add(found, self._requests[uid], 1)
        if found.pods:
            self._sums[claim] = found
        return found

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Handle the event of a pod that was added (`old` is None), changed, or deleted (`new` is None)."""
        if old is not None:
            self._forget(old.metadata.uid)
        if new is not None and any(claim in self._sums for claim in awaiting_node(new)):
            self._requests[new.metadata.uid] = requests = _requests(new)
            for found in self._sums_of(requests):
                found.pods += 1
            self.counted(new.metadata.uid)

    def _forget(self, uid: str) -> None:
        requests = self._requests.get(uid)
        if requests is None:
            return
        self._set_summed(uid, summed=False)
        del self._requests[uid]
        for claim in requests.claims:
            if (found := self._sums.get(claim)) is not None:
                found.pods -= 1
                if not found.pods:
                    del self._sums[claim]

    def counted(self, uid: str) -> None:
        """Update the sums, because the pod of that UID counts for a node now, or does not any more."""
        self._set_summed(uid, summed=uid in self._requests and not self._counts(uid))

    def _set_summed(self, uid: str, *, summed: bool) -> None:
        if summed == (uid in self._summed):
            return
        for found in self._sums_of(self._requests[uid]):
            _add(found, self._requests[uid], 1 if summed else -1)
        (self._summed.add if summed else self._summed.discard)(uid)

    def _sums_of(self, requests: _PodRequests) -> Iterable[_Sum]:
        return [self._sums[claim] for claim in requests.claims if claim in self._sums]


def _requests(pod: Pod) -> _PodRequests:
    claims = list(dict.fromkeys(awaiting_node(pod)))
    return _PodRequests(claims, {**requested(pod), **A_POD})


def _add(found: _Sum, requests: _PodRequests, times: int) -> None:
    for name in found.amounts:
        found.amounts[name] += times * requests.amounts.get(name, 0)
