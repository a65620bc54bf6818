"""The facts that the checks use, read once from the API server with the user's own permissions.

A kind that may not be read, or that the server does not serve, is remembered as such: the check that asks for it
reports that it could not be made (`Unreadable`), or what it means that the kind is missing.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from parley.api.names import CONTROLLER_LEASE, GROUP
from parley.api.resources import (
    BUILTIN_CLAIMS,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    DEVICE_CLASSES,
    LEASES,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    SERVER_VERSION,
    TEMPLATES,
    Resource,
)
from parley.doctor import kinds
from parley.doctor.installed import NAMESPACE
from parley.doctor.kinds import Body
from parley.doctor.leases import as_seen, doubtful
from parley.kube.client import ApiError, Client, Forbidden, Listing, NotFound, OutcomeUnknown, Unauthorized

T = TypeVar("T")

RAW_NODES, RAW_PODS = NODES.untyped(), PODS.untyped()

OURS: tuple[Resource[Any], ...] = (CLASSES, CLAIMS, TEMPLATES, POD_SCHEDULINGS, CLAIM_RELEASES)
IN_NAMESPACE: tuple[Resource[Any], ...] = (
    LEASES,
    RAW_PODS,
    kinds.ACCOUNTS,
    kinds.DEPLOYMENTS,
    kinds.ROLES,
    kinds.ROLE_BINDINGS,
)
"""What is looked at only where Parley's programs are."""

EVERYWHERE: tuple[Resource[Any], ...] = (
    *OURS,
    BUILTIN_CLAIMS,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    RAW_NODES,
    kinds.CRDS,
    kinds.POLICIES,
    kinds.POLICY_BINDINGS,
    kinds.CLUSTER_ROLES,
    kinds.CLUSTER_ROLE_BINDINGS,
    kinds.FLOW_SCHEMAS,
    kinds.DAEMON_SETS,
)


RENEWAL_SECONDS = 5.0
"""Within so long a holder renews its Lease, twice with the usual times."""


class Unreadable(Exception):
    """Raised by a check that needs objects that could not be read; `remedy` is what would allow that."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class NotReadable:
    """Why a kind was not read; `served` is False if the API server does not know it."""

    why: str
    remedy: str = ""
    served: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """A cluster at the time `now`; Parley's programs are looked for in `namespace`."""

    now: datetime
    namespace: str
    program: str
    version: Body | NotReadable
    listings: Mapping[Resource[Any], Listing[Any] | NotReadable]

    def all(self, resource: Resource[T]) -> tuple[T, ...]:
        """Every object of the kind. Raises Unreadable if they could not be read."""
        found = self.listings[resource]
        if isinstance(found, Listing):
            return found.items
        raise Unreadable(found.why, found.remedy)

    def served(self, resource: Resource[Any]) -> bool:
        """Whether the API server serves the kind."""
        found = self.listings[resource]
        return isinstance(found, Listing) or found.served

    def named(self, resource: Resource[Body]) -> dict[str, Body]:
        """Objects by their names; of namespaced kinds those in Parley's namespace. Raises Unreadable."""
        return {
            body["metadata"]["name"]: body
            for body in self.all(resource)
            if not resource.namespaced or body["metadata"].get("namespace") == self.namespace
        }


async def namespace_of_controller(client: Client) -> str:
    """Where the controller's Lease is; of several the one that was renewed last. `parley-system` if none is seen.

    Raises as `gather` does.
    """
    found = await _read(client.list(LEASES, field_selector=f"metadata.name={CONTROLLER_LEASE}"), LEASES)
    if isinstance(found, NotReadable) or not found.items:
        return NAMESPACE
    return max(found.items, key=lambda lease: lease.spec.renew_time or "").metadata.namespace


async def gather(client: Client, now: datetime, namespace: str, program: str) -> Facts:
    """Read the cluster; `program` is the version of who asks.

    Raises OutcomeUnknown if the API server does not answer, Unauthorized if it does not know who asks.
    """
    version = await _read(client.get(SERVER_VERSION, "version"), SERVER_VERSION)
    wanted = [(kind, namespace) for kind in IN_NAMESPACE] + [(kind, None) for kind in EVERYWHERE]
    found = await asyncio.gather(*(_read(client.list(kind, where), kind) for kind, where in wanted))
    listings = {kind: listing for (kind, _), listing in zip(wanted, found, strict=True)}
    listings[LEASES] = await _watched(client, namespace, listings[LEASES], now)
    return Facts(now, namespace, program, version, listings)


async def _watched(
    client: Client, namespace: str, leases: Listing[Any] | NotReadable, now: datetime
) -> Listing[Any] | NotReadable:
    """The Leases. If a Lease's time may be off because of clock skew, watches whether it is renewed."""
    if isinstance(leases, NotReadable) or not any(doubtful(lease, now) for lease in leases.items):
        return leases
    await asyncio.sleep(RENEWAL_SECONDS)
    later = await _read(client.list(LEASES, namespace), LEASES)
    if isinstance(later, NotReadable):
        return later
    before = {lease.metadata.name: lease for lease in leases.items}
    return replace(later, items=tuple(as_seen(lease, before, now) for lease in later.items))


async def _read(reading: Awaitable[T], resource: Resource[Any]) -> T | NotReadable:
    try:
        return await reading
    except (OutcomeUnknown, Unauthorized):
        raise
    except Forbidden as error:
        right = f"get and list {_full(resource)}"
        return NotReadable(error.message, f"ask an administrator for the right to {right}, or let one run it")
    except NotFound:
        group = resource.group  # a server without the kinds of the core group is none of Kubernetes
        remedy = f"see the checks crds and dra, and kubectl api-resources --api-group={group}" if group else ""
        return NotReadable(f"the API server knows no {_full(resource)}", remedy, served=False)
    except ApiError as error:
        return NotReadable(f"{_full(resource)}: {error.message}", "see the API server's log, and try again")


def _full(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def installed(facts: Facts) -> bool:
    """Whether any of Parley's kinds is served."""
    return any(facts.served(kind) for kind in OURS if kind.group == GROUP)
