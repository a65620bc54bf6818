"""What a bug on purpose is: see `planted`."""

from dataclasses import dataclass
from typing import Any

from tests.soak.actions.priorities import Preemption

from parley.api.models import Hold

Patch = tuple[Any, str, Any]
"""An object, its attribute, and what stands there while the bug is planted."""


@dataclass(frozen=True, slots=True)
class Bug:
    """What is broken, the rules of which one must notice, and whether that takes two controllers, a bad network,
    meddlers, pods for the extender path, lost responses to bindings, a hostile tenant, classes that keep claims
    or pods that leave data on nodes, or claims that reserve room there (and yield it), or allocations that need
    another one, or claims that are immediate or made on demand, or limits of classes, parameters in an object, or
    tokens of a second driver, or a driver that misbehaves, or a standalone one, or nodes with NoExecute taints, or
    watches of some kinds that are far behind; and what there is of priorities."""

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
    """Does not what it should."""


def no_result(*_: Any, **__: Any) -> None:
    """Neither does this."""
