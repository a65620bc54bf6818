"""Allocated claims that a driver could not restore: what their records name is not handed out again.

On the claim's node the driver allocates nothing, nor anywhere the devices that the claim's record names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.negotiation.answers import Answer
from parley.sdk.checks import DriverFault
from parley.sdk.values import Allocation, Device, Held


@dataclass(frozen=True, slots=True)
class NotRestored:
    """What one claim holds, and why nothing is allocated beside it. `local`: it can be used on one node alone."""

    held: Held
    message: str
    local: bool = True

    def bars(self, node: str) -> bool:
        """Whether the driver might hand out there what the claim holds. Ordinary DRA names devices, no node."""
        return self.held.data is not None and (not self.local or self.held.node in (None, node))


def barred(lost: Iterable[NotRestored], nodes: Iterable[str]) -> dict[str, str]:
    """Those of the nodes where nothing may be allocated, and why."""
    known = list(lost)
    return {node: one.message for node in nodes for one in known if one.bars(node)}


def without_barred(
    lost: Iterable[NotRestored], answers: Mapping[str, Answer], reasons: Mapping[str, str]
) -> Mapping[str, Answer]:
    """The driver's answers, without nodes where nothing may be allocated. `reasons` has those that it was not
    asked about."""
    known = list(lost)
    if not known:
        return answers
    return {
        name: Answer(answer.viable, _allowed(known, answer.alternatives), {**answer.reasons, **reasons})
        for name, answer in answers.items()
    }


def _allowed(lost: Sequence[NotRestored], alternatives: Any) -> Any:
    if not isinstance(alternatives, tuple):
        return alternatives
    taken = barred(lost, alternatives)
    return tuple(node for node in alternatives if node not in taken)


def check_devices(lost: Iterable[NotRestored], allocations: Mapping[str, Allocation]) -> None:
    """Raises DriverFault if a device was allocated that such a claim may use."""
    given = {device for allocation in allocations.values() for device in allocation.devices}
    for one in lost:
        if shared := given & frozenset[Device](one.held.devices):
            device = min(shared)
            raise DriverFault(f"device {device.pool}/{device.device} may be in use: {one.message}")
