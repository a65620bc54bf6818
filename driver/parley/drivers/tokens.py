"""The tokens driver: each of its classes is a pool of a number of tokens, for the cluster or on each node.

A token means what the author of the class decides (a licence, a slot of a disk). See docs/tokens-driver.md.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from parley.api.wording import counted
from parley.sdk import Allocation, Answer, Capacity, ClaimRequest, ClassOnNodes, Driver, Held, Parameters, Request

EVERYWHERE = "*"  # stands for all nodes in place of a node's name
UNTOUCHED = ""  # stands for a node on which no tokens are held

MOST = 1_000_000_000
"""The most tokens of a pool, and of a claim."""


class Pool(Parameters):
    """Parameters of a class."""

    pool: Annotated[int, Field(ge=1, le=MOST, strict=True, description="How many tokens there are.")]
    scope: Annotated[Literal["Cluster", "Node"], Field(description="In all, or on each node.")] = "Cluster"


class Wanted(Parameters):
    """Parameters of a claim."""

    count: Annotated[int, Field(ge=1, le=MOST, strict=True, description="How many tokens.")] = 1


class Record(Parameters):
    """The tokens of an allocated claim, as recorded in its handle."""

    pool: str
    node: str
    count: Annotated[int, Field(ge=1, strict=True)]


class NotEnoughTokens(Exception):
    """Raised when the tokens that were free when the driver was asked are not free any more."""


class TokensDriver(Driver[Wanted, Pool]):
    """Counts the tokens of claims by their handles, not by their classes, which may have changed or be gone."""

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
        """Whether the pools for the whole cluster have enough, and the others would on a node without holders."""
        return not self._lacking(request, UNTOUCHED)

    async def allocate(self, request: Request[Wanted, Pool], node: str) -> Mapping[str, Allocation]:
        """Holds the tokens. Raises NotEnoughTokens if another request was faster."""
        if lacking := self._lacking(request, node):
            raise NotEnoughTokens(f"node {node}: {lacking}")
        return {claim.name: self._allocate(claim, node) for claim in request.claims}

    def _allocate(self, claim: ClaimRequest[Wanted, Pool], node: str) -> Allocation:
        data = {"pool": claim.class_name, "node": node, "count": claim.parameters.count}
        self._hold(claim.uid, data)
        return Allocation(data=data, available_on=None if claim.class_parameters.scope == "Cluster" else ())

    async def deallocate(self, uid: str) -> None:
        """Frees the claim's tokens at once."""
        self._hold(uid, {})

    def restore(self, held: Held) -> None:
        """Counts the tokens of a claim. Raises ValidationError if this driver did not record them."""
        self._hold(held.uid, Record.model_validate(held.data).model_dump() if held.data else {})

    def forget(self, uid: str) -> None:
        """Frees the claim's tokens."""
        self._hold(uid, {})

    def units(self, claim: ClaimRequest[Wanted, Pool]) -> int:
        """The number of tokens: the limits of a class count these."""
        return claim.parameters.count

    def capacity(self, of: ClassOnNodes[Pool]) -> Capacity:
        """The tokens of the pool; for a pool on each node, the sum over these nodes."""
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
            free = max(0, pool.pool - used)  # a pool may have been reduced below the number of held tokens
            if free < count:
                return f"{free} of {counted(pool.pool, 'token')} of class {name} free, {count} wanted"
        return ""

    def _hold(self, uid: str, data: Mapping[str, Any]) -> None:
        """Replaces the tokens of the claim; {} for none."""
        for holding, sign in ((self._held.pop(uid, {}), -1), (data, 1)):
            if holding:
                self._used[holding["pool"], holding["node"]] += sign * holding["count"]
                self._used[holding["pool"], EVERYWHERE] += sign * holding["count"]
        if data:
            self._held[uid] = data
