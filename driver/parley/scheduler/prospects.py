"""Whether a change on some nodes may help those who wait because no node will do: asked before anything is
decided.

Who waits has seen every node refused, for whatever reason. So a change on one node alone helps only if that
node comes into question and every driver has room there.
"""

from collections.abc import Collection, Mapping
from typing import Any

from parley.scheduler.candidates import CandidateNodes
from parley.scheduler.questions import Question
from parley.sdk import Request
from parley.sdk.embedded import EmbeddedDriver


class Prospects:
    """Those of a line of pods that want the same: `nodes` and `requests` are of one of them.

    On the nodes in `excluded` a driver will never do.
    """

    def __init__(
        self,
        drivers: Mapping[str, EmbeddedDriver],
        nodes: CandidateNodes,
        requests: Mapping[str, Request[Any, Any]],
        excluded: Mapping[str, str],
    ) -> None:
        self._asked = [(drivers[name], request) for name, request in requests.items()]
        self._nodes = nodes
        self._excluded = excluded

    def __call__(self, nodes: Collection[str]) -> bool:
        """Whether what changed on these nodes may help."""
        return any(map(self._may_do, nodes))

    def _may_do(self, node: str) -> bool:
        if node in self._excluded or self._nodes.misfit(node):
            return False
        return all(driver.has_room(request, node) for driver, request in self._asked)


def prospects(
    drivers: Mapping[str, EmbeddedDriver], nodes: CandidateNodes, asked: Question, excluded: Mapping[str, str]
) -> Prospects | None:
    """None if drivers outside are asked, too: what changes their answers only they know."""
    if asked.outside:
        return None
    return Prospects(drivers, nodes.anew(), asked.requests, excluded)
