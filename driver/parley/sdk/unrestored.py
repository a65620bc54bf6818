"""Allocated claims that a driver could not restore: their resources are not allocated again.

The driver allocates nothing on the claim's node, and on no node the devices that the claim's record names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parley.negotiation.answers import Answer
from parley.sdk.checks import DriverFault, fault_text
from parley.sdk.values import Allocation, Device, Held


@dataclass(frozen=True, slots=True)
class _NotRestored:
    """A claim's allocation, and why nothing is allocated beside it. `local`: it can be used on one node alone."""

    held: Held
    message: str
    local: bool

    def bars(self, node: str) -> bool:
        """Whether the driver might allocate the claim's resources again there. Ordinary DRA bars only devices."""
        return self.held.data is not None and (not self.local or self.held.node in (None, node))


class Unrestored:
    """The claims that the driver of that name could not restore; each until it is released."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._claims: dict[str, _NotRestored] = {}

    def add(self, held: Held, claim: str, error: BaseException, *, local: bool) -> None:
        """Adds what the claim holds, which the driver failed to restore. `local`: it can be used on its node
        alone."""
        message = (
            f"driver {self._driver} could not restore what claim {claim} holds "
            f"({fault_text(error)}), and leaves it alone until that claim is released"
        )
        self._claims[held.uid] = _NotRestored(held, message, local)

    def remove(self, uid: str) -> None:
        """Removes the claim, if it is here: it was released, or restored after all."""
        self._claims.pop(uid, None)

    def messages(self) -> dict[str, str]:
        """What to tell the user, by the claim's UID."""
        return {uid: claim.message for uid, claim in self._claims.items()}

    def barred(self, nodes: Iterable[str]) -> dict[str, str]:
        """The nodes among these where nothing may be allocated, each with the reason."""
        if not self._claims:
            return {}
        return {node: claim.message for node in nodes for claim in self._claims.values() if claim.bars(node)}

    def without_barred(self, answers: Mapping[str, Answer], reasons: Mapping[str, str]) -> Mapping[str, Answer]:
        """The driver's answers without barred nodes: not among the alternatives, and with `reasons` for those that
        the driver was not asked about."""
        if not self._claims:
            return answers
        return {
            name: Answer(answer.viable, self._allowed(answer.alternatives), {**answer.reasons, **reasons})
            for name, answer in answers.items()
        }

    def _allowed(self, alternatives: Any) -> Any:
        if not isinstance(alternatives, tuple):
            return alternatives
        excluded = self.barred(alternatives)
        return tuple(node for node in alternatives if node not in excluded)

    def check_devices(self, allocations: Mapping[str, Allocation]) -> None:
        """Raises DriverFault if a device was allocated that an unrestored claim may use."""
        allocated = {device for allocation in allocations.values() for device in allocation.devices}
        for claim in self._claims.values():
            if shared := allocated & frozenset[Device](claim.held.devices):
                device = min(shared)
                raise DriverFault(f"device {device.pool}/{device.device} may be in use: {claim.message}")
