"""Parley's removal from a cluster: which claims are in use, and how what is left loses Parley's finalizers.

Parley's finalizers keep claims from being deleted while they are in use. The controller and standalone drivers set
and remove them; when these are gone nobody does, and what is deleted then (a namespace, too) terminates for ever.
So they are removed last, when no controller leads that would set them again.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.builtin import Lease
from parley.api.names import DEVICE_CLASS, FINALIZER, driver_finalizer
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
_OF_DRIVERS = driver_finalizer("")


class StillLeads(Unanswerable):
    """Raised when a controller leads that would set finalizers again; the message names it."""


@dataclass(frozen=True, slots=True)
class Left:
    """What Parley has in a cluster, as the API server sent it: objects that cannot be decoded count, too."""

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
        """What is in use by whom, and what ends it."""
        claim = f"claim {self.namespace}/{self.name}"
        if self.pods:
            pods = noun_for(len(self.pods), "pod")
            return f"{claim} is used by {pods} {', '.join(self.pods)}: delete the {pods}"
        if self.nodes:
            places = ", ".join(self.nodes)
            return f"{claim} may still be prepared on {places}: wait until the node plugin confirms that it is not"
        return f"{claim} is allocated, and no pod uses it: delete the claim"


async def read(client: Client) -> Left:
    """All of it. Parley's own kinds that the server does not have any more are empty."""
    mirrors, templates = await _builtin(client, BUILTIN_CLAIMS), await _builtin(client, BUILTIN_TEMPLATES)
    return Left(
        await _listed(client, CLAIMS),
        tuple(it for it in mirrors if _negotiated(it["spec"])),
        tuple(it for it in templates if _negotiated(it["spec"]["spec"])),
        await _listed(client, CLAIM_RELEASES),
    )


async def uses(client: Client) -> list[Use]:
    """The claims in use, by name. It reads built-in claims, claims and releases, and nothing else."""
    mirrors = [it for it in await _builtin(client, BUILTIN_CLAIMS) if _negotiated(it["spec"])]
    return in_use([*await _listed(client, CLAIMS), *mirrors], await _listed(client, CLAIM_RELEASES))


def in_use(claims: Iterable[Json], releases: Iterable[Json]) -> list[Use]:
    """Those of the claims, mirrors or Parley's own, that are reserved, allocated, or may be prepared somewhere."""
    pods: dict[tuple[str, str], set[str]] = {}
    nodes: dict[tuple[str, str], set[str]] = {}
    for claim in claims:
        status = claim.get("status") or {}
        users = {str(user["name"]) for user in status.get("reservedFor") or ()}
        if users or status.get("allocation"):
            pods.setdefault(_place(claim), set()).update(users)
    for release in releases:
        if release["spec"].get("nodeLost"):
            continue  # nothing waits for it
        claim = release["spec"]["claim"]
        nodes.setdefault((claim["namespace"], claim["name"]), set()).add(str(release["spec"]["nodeName"]))
    return [
        Use(*place, tuple(sorted(pods.get(place, ()))), tuple(sorted(nodes.get(place, ()))))
        for place in sorted(pods.keys() | nodes.keys())
    ]


async def lease_namespaces(client: Client, lease: str) -> list[str]:
    """The namespaces that have a lease of that name; none if they may not be listed."""
    try:
        found = await client.list(LEASES, field_selector=f"metadata.name={lease}")
    except Forbidden:
        return []
    return sorted(one.metadata.namespace for one in found.items)


async def wait_until_nobody_leads(client: Client, namespace: str, lease: str, seconds: float) -> None:
    """Return when the lease is free, or was not renewed for its whole duration while this looked.

    Raises StillLeads after that many seconds.
    """
    loop = asyncio.get_running_loop()
    deadline, seen, since = loop.time() + seconds, "", loop.time()
    while True:
        try:
            found = await client.get(LEASES, lease, namespace)
        except NotFound:
            return
        shown = _renewal(found)
        if shown != seen:
            seen, since = shown, loop.time()
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
    """Take Parley's finalizers off everything, and delete what Parley made that nobody uses.

    Returns how many objects were changed. What is in use stays, without a finalizer. An object that somebody
    changes meanwhile is read again; raises Conflict if that happens again and again.
    """
    changed = 0
    for remaining in reversed(range(_ROUNDS)):
        again: Conflict | None = None
        for step in _steps(await read(client)):
            try:
                await step.take(client)
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
    """Those that go."""
    delete: bool

    async def take(self, client: Client) -> None:
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
                    raise  # else it went when it had lost them: its namespace is being deleted

    def sentence(self) -> str:
        what = f"{self.resource.kind}.{self.resource.group} {'/'.join(_place(self.found))}"
        done = [f"removed {', '.join(self.finalizers)}"] if self.finalizers else []
        return f"{what}: {' and '.join([*done, *(['deleted'] if self.delete else [])])}"


def _steps(left: Left) -> Iterator[_Step]:
    used = {(use.namespace, use.name) for use in in_use([*left.claims, *left.mirrors], left.releases)}
    for claim in left.claims:
        if goes := _ours(claim):
            yield _Step(CLAIMS, claim, goes, delete=False)
    for mirror in left.mirrors:
        unused = _place(mirror) not in used and not _of_a_pod(mirror)
        delete = unused and not mirror["metadata"].get("deletionTimestamp")
        goes = _ours(mirror)
        if goes or delete:
            yield _Step(BUILTIN_CLAIMS, mirror, goes, delete)
    for template in left.templates:
        yield _Step(BUILTIN_TEMPLATES, template, (), delete=True)


def _ours(found: Json) -> tuple[str, ...]:
    """Finalizers of the controller and of standalone drivers; what Kubernetes itself sets is its own matter."""
    there = found["metadata"].get("finalizers") or ()
    return tuple(it for it in there if it == FINALIZER or (it.endswith(_OF_DRIVERS) and not _kubernetes(it)))


def _kubernetes(finalizer: str) -> bool:
    domain = finalizer.partition("/")[0]
    return domain.endswith((".k8s.io", "kubernetes.io"))


def _of_a_pod(mirror: Json) -> bool:
    """What was generated for a pod goes with it."""
    return any(owner.get("kind") == "Pod" for owner in mirror["metadata"].get("ownerReferences") or ())


def _negotiated(spec: Json) -> bool:
    """Whether it is Parley's to allocate."""
    requests = (spec.get("devices") or {}).get("requests") or ()
    return any((it.get("exactly") or {}).get("deviceClassName") == DEVICE_CLASS for it in requests)


def _place(found: Json) -> tuple[str, str]:
    return str(found["metadata"]["namespace"]), str(found["metadata"]["name"])


async def _builtin(client: Client, resource: Resource[Any]) -> Sequence[Json]:
    """Raises Unanswerable where the server does not have the kind: pods may use claims all the same."""
    try:
        return (await client.list(resource.untyped())).items
    except NotFound as error:
        raise Unanswerable(
            f"the API server does not serve {resource.plural} of {resource.api_version}, so it is not known"
            " whether claims are in use: start it with --runtime-config=resource.k8s.io/v1=true, or choose another"
            " one with --context"
        ) from error


async def _listed(client: Client, resource: Resource[Any]) -> tuple[Json, ...]:
    try:
        return tuple((await client.list(resource.untyped())).items)
    except NotFound:
        return ()
