"""Scores for pods of a burst, by the room that a driver has left: counts pods that were answered before as served.

An answer reserves nothing, and in a burst many pods are answered before the first one's node is selected. If all
of them were sent to the fullest node, most would fail there. So each answered pod is expected on the node with its
best score until it holds something, is answered again, or is gone; and the scores of later pods count it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parley.kube.cache import Key
from parley.negotiation.answers import viable_for_all
from parley.negotiation.preference import scores_by_room
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.merging import MOST_CLAIMS, merge_requests
from parley.sdk.values import ClaimRequest, Request


@dataclass(frozen=True, slots=True)
class _Expected:
    """The request of an answered pod, and the node that it will probably get."""

    request: Request[Any, Any]
    node: str


class ExpectedPods:
    """Pods that have an answer and hold nothing. `holds` returns whether the claim with a UID holds anything."""

    def __init__(self, driver: EmbeddedDriver, holds: Callable[[str], bool]) -> None:
        self._driver = driver
        self._holds = holds
        self._by_key: dict[Key, _Expected] = {}
        self._by_node: defaultdict[str, dict[Key, Request[Any, Any]]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._by_key)

    def forget(self, key: Key) -> None:
        """Forgets a pod that is served or gone. Idempotent."""
        expected = self._by_key.pop(key, None)
        if expected is not None:
            of_node = self._by_node[expected.node]
            del of_node[key]
            if not of_node:
                del self._by_node[expected.node]

    def scores(self, key: Key, request: Request[Any, Any], viable: Sequence[str]) -> Mapping[str, float]:
        """The pod's scores on these nodes; it is expected on the best one from now on. Leaves out nodes without
        room beside the pods expected there. Raises DriverFault."""
        self.forget(key)
        scores = scores_by_room(request.prefer, self._room_left(request, viable))
        if scores:
            node = max(scores, key=scores.__getitem__)
            self._by_key[key] = _Expected(request, node)
            self._by_node[node][key] = request
        return scores

    def _room_left(self, request: Request[Any, Any], nodes: Sequence[str]) -> dict[str, float]:
        left: dict[str, float] = {}
        alone: list[str] = []
        for node in nodes:
            with_others = self._with_expected(request, node)
            if with_others is request:
                alone.append(node)
            elif len(with_others.claims) <= MOST_CLAIMS and self._viable(with_others, node):
                left.update(self._driver.room_left(with_others, (node,)))
        return {**self._driver.room_left(request, alone), **left}

    def _with_expected(self, request: Request[Any, Any], node: str) -> Request[Any, Any]:
        """The request with the claims of the pods that are expected on the node added."""
        expected = self._by_node.get(node, {}).values()
        return merge_requests(request, (replace(other, claims=self._pending(other)) for other in expected))

    def _pending(self, request: Request[Any, Any]) -> tuple[ClaimRequest[Any, Any], ...]:
        return tuple(claim for claim in request.claims if not self._holds(claim.uid))

    def _viable(self, request: Request[Any, Any], node: str) -> bool:
        return bool(viable_for_all((node,), self._driver.viable(request, (node,))))
