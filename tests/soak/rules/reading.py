"""What the API server holds now, as the rules read it: JSON bodies."""

from collections.abc import Iterator
from typing import Any

from tests.soak.rules.mirrors import Json

from parley.api.resources import CLAIMS, PODS, Resource
from parley.kube.memory import MemoryServer


def bodies(server: MemoryServer, resource: Resource[Any]) -> Iterator[Json]:
    """All objects of the kind."""
    return (stored.body for stored in server.store.collection(resource).objects.values())


def living_pod(server: MemoryServer, uid: str) -> Json | None:
    """The pod of that UID, None if it does not exist any more."""
    return next((body for body in bodies(server, PODS) if body["metadata"]["uid"] == uid), None)


def named_claims(server: MemoryServer, uid: str) -> frozenset[str]:
    """UIDs of the Parley claims that the pod of that UID names."""
    pod = living_pod(server, uid)
    entries = pod["spec"].get("resourceClaims") or () if pod is not None else ()
    names = {entry.get("resourceClaimName") for entry in entries}
    metas = [body["metadata"] for body in bodies(server, CLAIMS)]
    return frozenset(meta["uid"] for meta in metas if meta["name"] in names)


def priority(pod: Json) -> int:
    """Of a pod, by its spec."""
    found: int = pod["spec"].get("priority", 0)
    return found
