"""The room that a workspace reserves on its node for the pods that use it, and the limits of its class."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from parley.api.models import Hold
from parley.api.quantity import parse, thousandths
from parley.sdk import ClaimRequest, Parameters, Reserve
from parley.sdk.checks import MOST_PODS


def _size(text: str) -> str:
    if not 0 < parse(text) <= 2**60:
        raise ValueError("must be more than 0 and at most 1Ei")
    return text


def _text(written: object) -> object:
    """The text of a value that may be a number: CPUs are often written as numbers."""
    return str(written) if isinstance(written, int | float) and not isinstance(written, bool) else written


def _cpu(text: str) -> str:
    if not 0 < thousandths(text) <= 2**40:
        raise ValueError("must be more than 0, as in 2 or 500m")
    return text


Size = Annotated[str, Field(max_length=32), AfterValidator(_size)]


Cpu = Annotated[str, BeforeValidator(_text), Field(max_length=32), AfterValidator(_cpu)]


class WorkspaceReserve(Parameters):
    """Room on a node for pods."""

    cpu: Annotated[Cpu | None, Field(description="As pods request it: 2, or 500m.")] = None
    memory: Annotated[Size | None, Field(description="As pods request it.")] = None
    pods: Annotated[int, Field(ge=0, le=MOST_PODS, description="Of the number of pods that the node takes.")] = 0

    def reserve(self, hold: Hold, yields_to: tuple[str, ...]) -> Reserve:
        """The reservation as an SDK value."""
        named = {"cpu": self.cpu, "memory": self.memory}
        amounts = {name: amount for name, amount in named.items() if amount is not None}
        return Reserve(amounts, self.pods, hold, yields_to)

    def amounts(self) -> dict[str, str | int]:
        """The amounts by field name, without fields that are not set."""
        fields: dict[str, str | int | None] = {"cpu": self.cpu, "memory": self.memory, "pods": self.pods or None}
        return {name: amount for name, amount in fields.items() if amount is not None}


def excess(asked: WorkspaceReserve | None, most: WorkspaceReserve | None, claim: ClaimRequest[Any, Any]) -> str:
    """Why the claim may not reserve the room that it asks for, "" if it may. `most` is the limit of its class."""
    if asked is None:
        return ""
    if claim.generated:
        return (
            f"reserve of claim {claim.claim}: it was created from a template for one pod, and no other pod uses "
            "it later: leave reserve out, or have pods name one claim (sharedBy of a template creates it)"
        )
    allowed = most.amounts() if most is not None else {}
    for name, amount in asked.amounts().items():
        limit = allowed.get(name, 0)
        if parse(amount) > parse(limit):
            return (
                f"reserve.{name}={amount} of claim {claim.claim} is more than maxReserve.{name}={limit} of class "
                f"{claim.class_name}: reserve less, or raise maxReserve.{name} of the class"
            )
    return ""
