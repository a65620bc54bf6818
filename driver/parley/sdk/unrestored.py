"""Allocated claims that a driver could not restore: their resources are not allocated again.

The driver allocates nothing on the claim's node, and on no node the devices that the claim's record names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.negotiation.answers import Answer
from parley.sdk.checks import DriverFault
from parley.sdk.values import Allocation, Device, Held


@dataclass(frozen=True, slots=True)
class NotRestored:
    """A claim's allocation, and why nothing is allocated beside it. `local`: it can be used on one node alone."""

    held: Held
    message: str
    local: bool = True

    def bars(self, node: str) -> bool:
        """Whether the driver might allocate the claim's resources again there. Ordinary DRA bars only devices."""
        return self.held.data is not None and (not self.local or self.held.node in (None, node))


def barred(unrestored: Iterable[NotRestored], nodes: Iterable[str]) -> dict[str, str]:
    """The nodes among these where nothing may be allocated, each with the reason."""
    claims = list(unrestored)
    return {node: claim.message for node in nodes for claim in claims if claim.bars(node)}


def without_barred(
    unrestored: Iterable[NotRestored], answers: Mapping[str, Answer], reasons: Mapping[str, str]
) -> Mapping[str, Answer]:
    """The driver's answers without barred nodes: not among the alternatives, and with `reasons` for those that the
    driver was not asked about."""
    claims = list(unrestored)
    if not claims:
        return answers
    return {
        name: Answer(answer.viable, _allowed(claims, answer.alternatives), {**answer.reasons, **reasons})
        for name, answer in answers.items()
    }


def _allowed(unrestored: Sequence[NotRestored], alternatives: Any) -> Any:
    if not isinstance(alternatives, tuple):
        return alternatives
    excluded = barred(unrestored, alternatives)
    return tuple(node for node in alternatives if node not in excluded)


def check_devices(unrestored: Iterable[NotRestored], allocations: Mapping[str, Allocation]) -> None:
    """Raises DriverFault if a device was allocated that an unrestored claim may use."""
    allocated = {device for allocation in allocations.values() for device in allocation.devices}
    for claim in unrestored:
        if shared := allocated & frozenset[Device](claim.held.devices):
            device = min(shared)
            raise DriverFault(f"device {device.pool}/{device.device} may be in use: {claim.message}")
