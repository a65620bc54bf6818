"""Runs a driver inside the controller: typed parameters in, checked answers out.

What the controller knows of a driver is this class; what the driver knows of the controller is nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.negotiation.answers import Answer
from parley.sdk.checks import check_allocations, check_answers, check_scores, parse_parameters
from parley.sdk.driver import Allocation, ClaimRequest, Driver, Held, PodReference, Request


@dataclass(frozen=True, slots=True)
class RawClaim:
    """A pending claim before its parameters are typed."""

    name: str
    uid: str
    namespace: str
    claim: str
    class_name: str
    parameters: Mapping[str, Any] | None
    class_parameters: Mapping[str, Any] | None


class EmbeddedDriver:
    """One driver in this process."""

    def __init__(self, driver: Driver[Any, Any]) -> None:
        self.driver = driver
        self.name = driver.name

    @property
    def has_preferences(self) -> bool:
        """Whether the driver has a `score` of its own."""
        return type(self.driver).score is not Driver.score

    @property
    def node_local(self) -> bool:
        """Whether what is given back on a node changes the answers about that node alone."""
        return self.driver.node_local

    def request(self, pod: PodReference, claims: Sequence[RawClaim]) -> Request[Any, Any]:
        """The typed request. Raises BadParameters, with claim or class, field and value."""
        return Request(pod, tuple(self._typed(claim) for claim in claims))

    def _typed(self, raw: RawClaim) -> ClaimRequest[Any, Any]:
        driver = self.driver
        of_class = parse_parameters(driver.class_parameters, raw.class_parameters, f"class {raw.class_name}")
        of_claim = parse_parameters(driver.parameters, raw.parameters, f"claim {raw.namespace}/{raw.claim}")
        return ClaimRequest(raw.name, raw.uid, raw.claim, raw.class_name, of_claim, of_class)

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """The driver's answers by claim entry. Raises DriverFault if they break the contract."""
        answers = self.driver.viable(request, nodes)
        check_answers(self.name, request, nodes, answers)
        return answers

    def has_room(self, request: Request[Any, Any], node: str) -> bool:
        """Whether the node may be viable for all of the request's claims."""
        return self.driver.has_room(request, node)

    def score(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        """The driver's preferences, by node. Raises DriverFault if one is not between 0 and 1."""
        scores = self.driver.score(request, nodes)
        check_scores(self.name, scores)
        return scores

    def units(self, claim: ClaimRequest[Any, Any]) -> int:
        """How much of a class's limit in units the claim takes up."""
        return self.driver.units(claim)

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        """Allocate all claims of the request. On a DriverFault everything is given back before it is raised."""
        allocations = await self.driver.allocate(request, node)
        try:
            check_allocations(self.name, request, allocations)
        except Exception:
            for claim in request.claims:
                await self.driver.deallocate(claim.uid)
            raise
        return allocations

    async def deallocate(self, uid: str) -> None:
        """Give back what the claim holds."""
        await self.driver.deallocate(uid)

    def restore(self, held: Held) -> None:
        """Tell the driver of an allocation in the API."""
        self.driver.restore(held)
