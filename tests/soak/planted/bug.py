"""What a planted bug is; all of them are in `bugs`."""

from dataclasses import dataclass
from typing import Any

from tests.soak.actions.priorities import Preemption

from parley.api.models import Hold

Patch = tuple[Any, str, Any]
"""An object, its attribute, and the value of this while the bug is planted."""


@dataclass(frozen=True, slots=True)
class Bug:
    """What is patched, the rules of which one must be found broken, and the plan of the worlds in which it is:
    `trouble` is a bad network, `lost_bindings` are lost responses to bindings; with `extender` all pods take the
    extender path; the other fields are those of `Plan`."""

    patches: tuple[Patch, ...]
    rules: tuple[str, ...]
    lease: bool = False
    trouble: bool = False
    meddling: bool = False
    extender: bool = False
    lost_bindings: bool = False
    tenant: bool = False
    lasting: bool = False
    preemption: Preemption = Preemption.NONE
    data: bool = False
    reserving: Hold | None = None
    yielding: bool = False
    viewing: bool = False
    standing: bool = False
    on_demand: bool = False
    limiting: bool = False
    referring: bool = False
    tokens: bool = False
    unruly: bool = False
    standalone: bool = False
    tainting: bool = False
    lagging: bool = False


async def nothing(*_: Any, **__: Any) -> None:
    """In place of a coroutine function: does nothing."""


def no_result(*_: Any, **__: Any) -> None:
    """In place of a function: does nothing."""
