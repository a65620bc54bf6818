"""Planted bugs that a hostile tenant can use."""

from collections.abc import Mapping
from typing import Any

from tests.soak.planted.bug import Bug

from parley.control import restoring
from parley.control.objects import mirror as mirrors
from parley.control.release.deallocation import Deallocator
from parley.control.release.unseen_users import UnseenUsers
from parley.simulate import admission


def _owned_only(mirror: Any, driver: str) -> Any:
    return _COUNTED(mirror, driver) if mirrors.owner_pod(mirror) is not None else None


_WHOSE = admission._ownership
_COUNTED = mirrors.counted
_LET_IN = UnseenUsers.join_known

OF_TENANT: Mapping[str, Bug] = {
    "any name of a request makes a mirror, and a generated one is freed with its own pod": Bug(
        (
            (admission, "_creation_refused", lambda _, __, kind: "" if kind.endswith("Template") else "no"),
            (admission, "is_shareable", lambda claim: claim.spec.devices.requests[0].name != "exclusive"),
            (Deallocator, "_is_deleted_with_pod", lambda _self, _holding: True),
            (UnseenUsers, "join_known", lambda self, holding: _LET_IN(self, holding) if holding.named else []),
        ),
        ("exclusive, two pods", "handed out twice", "waits in vain"),
        hostile_tenant=True,
    ),
    "a restart counts only what has its owner, which anybody may change": Bug(
        (
            (admission, "_ownership", lambda mirror: _WHOSE(mirror)[1:]),
            (restoring, "counted", _owned_only),
        ),
        ("handed out twice", "moved under a pod"),
        hostile_tenant=True,
    ),
}
