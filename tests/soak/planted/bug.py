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
    `network_faults` is a bad network, `lost_bindings` are lost responses to bindings; with `extender` all pods
    take the extender path; the other fields are those of `Plan`."""

    patches: tuple[Patch, ...]
    rules: tuple[str, ...]
    lease: bool = False
    network_faults: bool = False
    interference: bool = False
    extender: bool = False
    lost_bindings: bool = False
    hostile_tenant: bool = False
    kept_claims: bool = False
    preemption: Preemption = Preemption.NONE
    node_data: bool = False
    reserved_room: Hold | None = None
    room_yields: bool = False
    views: bool = False
    immediate_claims: bool = False
    on_demand: bool = False
    class_limits: bool = False
    parameter_references: bool = False
    tokens: bool = False
    misbehaving_driver: bool = False
    standalone: bool = False
    no_execute_taints: bool = False
    parley_watch_lag: bool = False


async def nothing(*_: Any, **__: Any) -> None:
    """In place of a coroutine function: does nothing."""


def no_result(*_: Any, **__: Any) -> None:
    """In place of a function: does nothing."""
