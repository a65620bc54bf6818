"""Parley's removal from a cluster: finds the claims in use, and removes Parley's finalizers and mirrors.

Parley's finalizers keep claims from being deleted while they are in use. The controller and standalone drivers set
and remove them; without these, an object that is deleted (or its namespace) terminates for ever. So finalizers are
removed last, when no controller leads that would set them again.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.builtin import Lease
from parley.api.names import DEVICE_CLASS, FINALIZER, is_driver_finalizer
from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIM_RELEASES,
    CLAIMS,
    LEASES,
    Resource,
)
from parley.api.wording import noun_for
from parley.kube.client import Client, Conflict, Forbidden, NotFound
from parley.kube.faults import Unanswerable

Json = Mapping[str, Any]

_ROUNDS = 10


class StillLeads(Unanswerable):
    """Raised when a controller still leads, which would set finalizers again; the message names it."""


@dataclass(frozen=True, slots=True)
class ParleyObjects:
    """Parley's objects in a cluster, as the API server sent them: objects that cannot be decoded count, too."""

    claims: tuple[Json, ...] = ()
    """ResourceClaims of parley.dev."""
    mirrors: tuple[Json, ...] = ()
    """Built-in claims that Parley negotiates."""
    templates: tuple[Json, ...] = ()
    """Built-in templates that Parley made."""
    releases: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """A claim in use: the pods that hold it, and the nodes that may have it prepared for a pod that is gone."""

    namespace: str
    name: str
    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def sentence(self) -> str:
        """The sentence that says who uses the claim, and the remedy."""
        claim = f"claim {self.namespace}/{self.name}"
        if self.pods:
            pods = noun_for(len(self.pods), "pod")
            return f"{claim} is used by {pods} {', '.join(self.pods)}: delete the {pods}"
        if self.nodes:
            places = ", ".join(self.nodes)
            return f"{claim} may still be prepared on {places}: wait until the node plugin confirms that it is not"
        return f"{claim} is allocated, and no pod uses it: delete the claim"


async def read(client: Client) -> ParleyObjects:
    """All of Parley's objects. Kinds of Parley's own that the server does not have any more are empty."""
    mirrors, templates = (
        await _list_builtin(client, BUILTIN_CLAIMS),
        await _list_builtin(client, BUILTIN_TEMPLATES),
    )
    return ParleyObjects(
        await _list_if_served(client, CLAIMS),
        tuple(it for it in mirrors if _negotiated(it["spec"])),
        tuple(it for it in templates if _negotiated(it["spec"]["spec"])),
        await _list_if_served(client, CLAIM_RELEASES),
    )


async def uses(client: Client) -> list[Use]:
    """The claims in use, by name. Reads only built-in claims, claims and ClaimReleases."""
    mirrors = [it for it in await _list_builtin(client, BUILTIN_CLAIMS) if _negotiated(it["spec"])]
    return in_use(
        [*await _list_if_served(client, CLAIMS), *mirrors], await _list_if_served(client, CLAIM_RELEASES)
    )


def in_use(claims: Iterable[Json], releases: Iterable[Json]) -> list[Use]:
    """The claims, of mirrors or Parley's own, that are reserved, allocated, or may be prepared somewhere."""
    pods: dict[tuple[str, str], set[str]] = {}
    nodes: dict[tuple[str, str], set[str]] = {}
    for claim in claims:
        status = claim.get("status") or {}
        users = {str(user["name"]) for user in status.get("reservedFor") or ()}
        if users or status.get("allocation"):
            pods.setdefault(_key(claim), set()).update(users)
    for release in releases:
        if release["spec"].get("nodeLost"):
            continue  # nothing waits for a lost node
        claim = release["spec"]["claim"]
        nodes.setdefault((claim["namespace"], claim["name"]), set()).add(str(release["spec"]["nodeName"]))
    return [
        Use(*key, tuple(sorted(pods.get(key, ()))), tuple(sorted(nodes.get(key, ()))))
        for key in sorted(pods.keys() | nodes.keys())
    ]


async def lease_namespaces(client: Client, lease: str) -> list[str]:
    """The namespaces that have a lease of that name; none if they may not be listed."""
    try:
        leases = await client.list(LEASES, field_selector=f"metadata.name={lease}")
    except Forbidden:
        return []
    return sorted(found.metadata.namespace for found in leases.items)


async def wait_until_nobody_leads(client: Client, namespace: str, lease: str, seconds: float) -> None:
    """Wait until the lease is free, or was observed not to be renewed for its whole duration.

    Raises StillLeads after that many seconds.
    """
    loop = asyncio.get_running_loop()
    deadline, last, since = loop.time() + seconds, "", loop.time()
    while True:
        try:
            found = await client.get(LEASES, lease, namespace)
        except NotFound:
            return
        renewal = _renewal(found)
        if renewal != last:
            last, since = renewal, loop.time()
        if not found.spec.holder_identity or loop.time() - since > found.spec.lease_duration_seconds:
            return
        if loop.time() > deadline:
            raise StillLeads(
                f"{found.spec.holder_identity} still leads (Lease {namespace}/{lease}), and would set finalizers "
                "again: remove the controller first, or name Parley's own namespace if that is another's Lease"
            )
        await asyncio.sleep(1)


def _renewal(lease: Lease) -> str:
    return f"{lease.spec.holder_identity} {lease.spec.renew_time}"


async def release(client: Client, report: Callable[[str], None]) -> int:
    """Remove Parley's finalizers from all objects, and delete mirrors and built-in templates that are not in use.

    Returns the number of changed objects. Objects in use stay, without a finalizer. After a conflict all are read
    again; raises Conflict if that happens in each of several rounds.
    """
    changed = 0
    for remaining in reversed(range(_ROUNDS)):
        again: Conflict | None = None
        for step in _steps(await read(client)):
            try:
                await step.apply(client)
            except NotFound:
                continue
            except Conflict as error:
                again = error
                continue
            changed += 1
            report(step.sentence())
        if again is None:
            return changed
        if not remaining:
            raise again
    return changed


@dataclass(frozen=True, slots=True)
class _Step:
    """One object that loses finalizers, or is deleted, or both."""

    resource: Resource[Any]
    found: Json
    finalizers: tuple[str, ...]
    """The finalizers to remove."""
    delete: bool

    async def apply(self, client: Client) -> None:
        meta = self.found["metadata"]
        resource = self.resource.untyped()
        if self.finalizers:
            left = [it for it in meta["finalizers"] if it not in self.finalizers]
            body = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": left or None}}
            await client.patch(resource, meta["name"], body, meta["namespace"])
        if self.delete:
            try:
                await client.delete(resource, meta["name"], meta["namespace"], uid=meta["uid"])
            except NotFound:
                if not self.finalizers:
                    raise  # otherwise it was deleted with the last finalizer: its namespace is being deleted

    def sentence(self) -> str:
        what = f"{self.resource.kind}.{self.resource.group} {'/'.join(_key(self.found))}"
        done = [f"removed {', '.join(self.finalizers)}"] if self.finalizers else []
        return f"{what}: {' and '.join([*done, *(['deleted'] if self.delete else [])])}"


def _steps(left: ParleyObjects) -> Iterator[_Step]:
    used = {(use.namespace, use.name) for use in in_use([*left.claims, *left.mirrors], left.releases)}
    for claim in left.claims:
        if finalizers := _parleys_finalizers(claim):
            yield _Step(CLAIMS, claim, finalizers, delete=False)
    for mirror in left.mirrors:
        unused = _key(mirror) not in used and not _is_owned_by_pod(mirror)
        delete = unused and not mirror["metadata"].get("deletionTimestamp")
        finalizers = _parleys_finalizers(mirror)
        if finalizers or delete:
            yield _Step(BUILTIN_CLAIMS, mirror, finalizers, delete)
    for template in left.templates:
        yield _Step(BUILTIN_TEMPLATES, template, (), delete=True)


def _parleys_finalizers(found: Json) -> tuple[str, ...]:
    """The object's finalizers of the controller and of standalone drivers, without those that Kubernetes sets."""
    names = found["metadata"].get("finalizers") or ()
    return tuple(it for it in names if it == FINALIZER or (is_driver_finalizer(it) and not _is_kubernetes(it)))


def _is_kubernetes(finalizer: str) -> bool:
    domain = finalizer.partition("/")[0]
    return domain.endswith((".k8s.io", "kubernetes.io"))


def _is_owned_by_pod(mirror: Json) -> bool:
    """Whether the mirror was generated for a pod, with which it is deleted."""
    return any(owner.get("kind") == "Pod" for owner in mirror["metadata"].get("ownerReferences") or ())


def _negotiated(spec: Json) -> bool:
    """Whether Parley allocates a built-in claim with this spec."""
    requests = (spec.get("devices") or {}).get("requests") or ()
    return any((it.get("exactly") or {}).get("deviceClassName") == DEVICE_CLASS for it in requests)


def _key(found: Json) -> tuple[str, str]:
    return str(found["metadata"]["namespace"]), str(found["metadata"]["name"])


async def _list_builtin(client: Client, resource: Resource[Any]) -> Sequence[Json]:
    """All objects of the kind. Raises Unanswerable if the server does not have it: pods may use claims anyway."""
    try:
        return (await client.list(resource.untyped())).items
    except NotFound as error:
        raise Unanswerable(
            f"the API server does not serve {resource.plural} of {resource.api_version}, so it is not known"
            " whether claims are in use: start it with --runtime-config=resource.k8s.io/v1=true, or choose another"
            " one with --context"
        ) from error


async def _list_if_served(client: Client, resource: Resource[Any]) -> tuple[Json, ...]:
    try:
        return tuple((await client.list(resource.untyped())).items)
    except NotFound:
        return ()
