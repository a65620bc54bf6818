"""Planted bugs of what is written to the API, and of what was written and is not seen yet."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.soak.planted.bug import Bug

from parley.api.resources import BUILTIN_CLAIMS
from parley.control.caches.cluster import ClusterCache
from parley.control.caches.own_writes import OwnWrites
from parley.control.claims.mirrored import MadeMirrors
from parley.control.objects import mirror as mirrors
from parley.control.publishing import podscheduling
from parley.control.writes import MirrorWrites


def _without(part: str, whole: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The function, whose object lacks that part of its metadata."""

    def made(*args: Any, **kwargs: Any) -> dict[str, Any]:
        body = whole(*args, **kwargs)
        return {**body, "metadata": {name: value for name, value in body["metadata"].items() if name != part}}

    return made


def _settled_offer(*args: Any, **kwargs: Any) -> dict[str, Any]:
    body = _OFFER(*args, **kwargs)
    results = [{**r, "bindingConditions": [], "bindingFailureConditions": []} for r in body["devices"]["results"]]
    return {**body, "devices": {"results": results}}


async def _patch_blindly(self: MirrorWrites, mirror: Any, status: Any) -> Any:
    meta, body = mirror.metadata, {"status": status}
    written = await self._client.patch(BUILTIN_CLAIMS, meta.name, body, meta.namespace, subresource="status")
    self._cluster.own_writes.note(written.metadata)
    return written


async def _never(*_: Any) -> bool:
    return False


_OFFER = mirrors.offer_body

OF_RECORDS: Mapping[str, Bug] = {
    "an offer looks like an allocation": Bug(
        ((mirrors, "offer_body", _settled_offer),), ("bound too early", "in circles")
    ),
    "PodSchedulings have no owner": Bug(
        ((podscheduling, "body", _without("ownerReferences", podscheduling.body)),), ("left over",)
    ),
    "our own writes that are not seen yet are forgotten": Bug(
        ((OwnWrites, "is_stale", lambda _self, _cached: False),),
        (
            *("bound too early", "handed out twice", "moved under a pod"),
            *("waits in vain", "left over", "in circles", "never quiet"),
        ),
        network_faults=True,
        extender=True,
        lost_bindings=True,
    ),
    "writes of what is gone are remembered": Bug(
        ((ClusterCache, "_has_claim", lambda *_: True),),
        ("left over: own writes",),
        network_faults=True,
        interference=True,
    ),
    "mirrors are written blindly": Bug(
        ((MirrorWrites, "patch", _patch_blindly),),
        (
            "bound too early",
            "handed out twice",
            "left over",
            "moved under a pod",
            "waits in vain",
            "in circles",
            "never quiet",
        ),
        network_faults=True,
        extender=True,
    ),
    "mirrors of templates that are gone are made again": Bug(
        ((MadeMirrors, "is_gone", _never),), ("in circles",), on_demand=True
    ),
}
