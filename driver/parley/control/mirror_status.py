"""The body of a mirror's status for a holding: its allocation, and the pods that use it. Pure."""

from typing import Any

from parley.api.builtin import BuiltinClaim
from parley.control.holding import Holding
from parley.control.objects import in_use
from parley.control.objects.mirror import allocation_body, consumer, fulfilled_body
from parley.sdk import PodReference


def status_body(holding: Holding, mirror: BuiltinClaim, now: str, *, guarded: bool) -> dict[str, Any]:
    """The status to write. `guarded`: a new allocation gets the binding failure condition `in-use`."""
    body: dict[str, Any] = {"reservedFor": [*users(holding), *other_users(holding, mirror)]}
    if mirror.status.allocation is None:
        allocation = allocation_body(
            mirror,
            holding.driver,
            holding.allocation,
            holding.available_on,
            now,
            node_part=holding.node_part,
            units=holding.units if holding.records_units else None,
        )
        body |= in_use.with_condition(allocation, now) if guarded else {"allocation": allocation}
    elif holding.offered:
        body["devices"] = fulfilled_body(holding.driver, holding.allocation, holding.node, now)
    return body


def users(holding: Holding) -> list[dict[str, str]]:
    """The holding's users, as in `status.reservedFor`."""
    return [consumer(pod) for pod in holding.pods.values()]


def other_users(holding: Holding, mirror: BuiltinClaim) -> list[dict[str, str]]:
    """The mirror's further users: the scheduler and the claim controller reserve allocated claims, too."""
    reserved = mirror.status.reserved_for if holding.named else ()
    return [
        consumer(PodReference(holding.namespace, user.name, user.uid))
        for user in reserved
        if user.uid not in holding.pods
    ]
