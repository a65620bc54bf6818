"""The tokens driver: each of its classes is a pool of so many tokens, in all or on each node.

What a token is (a licence, a slot of a slow disk) only those know who made the class. See docs/tokens-driver.md.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from parley.api.wording import counted
from parley.sdk import Allocation, Answer, Capacity, ClaimRequest, ClassOnNodes, Driver, Held, Parameters, Request

EVERYWHERE = "*"  # in place of a node's name, as is the next
UNTOUCHED = ""

MOST = 1_000_000_000
"""More tokens no pool has, and none are wanted at once."""


class Pool(Parameters):
    """Parameters of a class."""

    pool: Annotated[int, Field(ge=1, le=MOST, strict=True, description="How many tokens there are.")]
    scope: Annotated[Literal["Cluster", "Node"], Field(description="In all, or on each node.")] = "Cluster"


class Wanted(Parameters):
    """Parameters of a claim."""

    count: Annotated[int, Field(ge=1, le=MOST, strict=True, description="How many tokens.")] = 1


class Record(Parameters):
    """What an allocated claim holds, in its handle."""

    pool: str
    node: str
    count: Annotated[int, Field(ge=1, strict=True)]


class NotEnoughTokens(Exception):
    """Raised when the tokens that were free at the question are not free any more."""


class TokensDriver(Driver[Wanted, Pool]):
    """Counts what claims hold, by their handles: no class is needed for that, it may have changed or be gone."""

    name = "tokens.parley.dev"
    parameters = Wanted
    class_parameters = Pool
    parameter_versions: ClassVar = {"tokens.parley.dev/v1alpha1": Wanted}
    class_parameter_versions: ClassVar = {"tokens.parley.dev/v1alpha1": Pool}

    def __init__(self) -> None:
        self._held: dict[str, Mapping[str, Any]] = {}
        self._used: Counter[tuple[str, str]] = Counter()

    def viable(self, request: Request[Wanted, Pool], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """A node is viable if every pool has enough for all claims of the request together."""
        lacking = {node: reason for node in nodes if (reason := self._lacking(request, node))}
        alternatives = None if self.has_room_anywhere(request) else ()
        viable = tuple(node for node in nodes if node not in lacking)
        return {claim.name: Answer(viable, alternatives, lacking) for claim in request.claims}

    def has_room_anywhere(self, request: Request[Wanted, Pool]) -> bool:
        """Whether the pools that are for all nodes have enough, and the others would on a node of their own."""
        return not self._lacking(request, UNTOUCHED)

    async def allocate(self, request: Request[Wanted, Pool], node: str) -> Mapping[str, Allocation]:
        """Hold the tokens. Raises NotEnough if another request was faster."""
        if lacking := self._lacking(request, node):
            raise NotEnoughTokens(f"node {node}: {lacking}")
        return {claim.name: self._allocate(claim, node) for claim in request.claims}

    def _allocate(self, claim: ClaimRequest[Wanted, Pool], node: str) -> Allocation:
        data = {"pool": claim.class_name, "node": node, "count": claim.parameters.count}
        self._hold(claim.uid, data)
        return Allocation(data=data, available_on=None if claim.class_parameters.scope == "Cluster" else ())

    async def deallocate(self, uid: str) -> None:
        """The claim's tokens are free at once."""
        self._hold(uid, {})

    def restore(self, held: Held) -> None:
        """Count what a claim holds. Raises ValidationError if this driver did not record it."""
        self._hold(held.uid, Record.model_validate(held.data).model_dump() if held.data else {})

    def forget(self, uid: str) -> None:
        """The claim holds nothing any more."""
        self._hold(uid, {})

    def units(self, claim: ClaimRequest[Wanted, Pool]) -> int:
        """The limits of a class are numbers of tokens."""
        return claim.parameters.count

    def capacity(self, of: ClassOnNodes[Pool]) -> Capacity:
        """The tokens of the pool; of one on each node those of all these nodes."""
        pool = of.parameters.pool
        places = of.nodes if of.parameters.scope == "Node" else (EVERYWHERE,)
        return Capacity(pool * len(places), sum(max(0, pool - self._used[of.name, place]) for place in places))

    def _lacking(self, request: Request[Wanted, Pool], node: str) -> str:
        """The reason why a pool has too few tokens on the node; empty if each has enough."""
        wanted: Counter[tuple[str, Pool]] = Counter()
        for claim in request.claims:
            wanted[claim.class_name, claim.class_parameters] += claim.parameters.count
        for (name, pool), count in wanted.items():
            used = self._used[name, node if pool.scope == "Node" else EVERYWHERE]
            free = max(0, pool.pool - used)  # a pool may have been made smaller than what is held of it
            if free < count:
                return f"{free} of {counted(pool.pool, 'token')} of class {name} free, {count} wanted"
        return ""

    def _hold(self, uid: str, data: Mapping[str, Any]) -> None:
        """The claim holds this and nothing else."""
        for holding, sign in ((self._held.pop(uid, {}), -1), (data, 1)):
            if holding:
                self._used[holding["pool"], holding["node"]] += sign * holding["count"]
                self._used[holding["pool"], EVERYWHERE] += sign * holding["count"]
        if data:
            self._held[uid] = data
