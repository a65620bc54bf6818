"""Planted bugs of bindings, and of the second scheduler."""

from collections.abc import Mapping
from typing import Any

from tests.soak.planted.bug import Bug, nothing

from parley.control.claims.podclaims import PodClaim
from parley.scheduler.extender.binding import Binder
from parley.scheduler.extender.posting import Posting
from parley.scheduler.extender.rejections import Rejections


async def _ready_at_once(self: Binder, user: Any, _node: str, _until: float) -> Any:
    pod = self._cluster.pod((user.namespace, user.name))
    return pod, ()


async def _bind_any_version(self: Posting, pod: Any, node: str, **_: Any) -> None:
    await _BIND(self, pod, node, exactly=False)


_BIND = Posting.bind

OF_BINDINGS: Mapping[str, Bug] = {
    "the extender path binds before it allocates": Bug(
        ((Binder, "_ready", _ready_at_once),), ("bound too early",), extender=True
    ),
    "a binding may land after its claims are released": Bug(
        ((Posting, "void_bindings", nothing), (Posting, "bind", _bind_any_version)),
        ("bound too early", "bound elsewhere", "handed out twice", "moved under a pod"),
        network_faults=True,
        extender=True,
        lost_bindings=True,
    ),
    "a scheduler is not notified that it may retry": Bug(
        ((Rejections, "_nudge", nothing),), ("waits in vain",), extender=True
    ),
    "a reservation that a scheduler dropped is not made again": Bug(
        ((PodClaim, "is_reserved", lambda _self, _pod: True),),
        ("not reserved", "waits in vain"),
        lost_bindings=True,
    ),
}
