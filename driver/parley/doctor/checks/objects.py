"""Objects that are stuck: deleted claims that still exist, ClaimReleases that no node confirms, and objects
that can't be decoded."""

from collections.abc import Iterator, Sequence

from parley.api.models import ClaimRelease
from parley.api.names import CONDITION_NEEDED, FINALIZER, MIRROR_LABEL, OUT_OF_SERVICE_TAINT, driver_finalizer
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS
from parley.api.wording import listed
from parley.control.release.receipts import owed
from parley.doctor.facts import OURS, RAW_NODES, Facts
from parley.doctor.findings import Finding, error, ok, unknown, warning
from parley.doctor.kinds import Body
from parley.explain.times import seconds_since, span
from parley.kube.client import Listing

LONG = 300.0
"""Seconds after which something that should pass by itself is looked at."""

_DRIVERS = driver_finalizer("")


def deleted_claims(facts: Facts) -> Iterator[Finding]:
    """No claim has been deleted for long and is still there."""
    claims = [(claim.metadata, claim.status.reserved_for) for claim in facts.all(CLAIMS)]
    needed = {
        claim.metadata.uid: condition.message
        for claim in facts.all(CLAIMS)
        for condition in claim.status.conditions
        if condition.type == CONDITION_NEEDED
    }
    mirrors = [
        (claim.metadata, tuple(claim.status.reserved_for))
        for claim in facts.all(BUILTIN_CLAIMS)
        if MIRROR_LABEL in claim.metadata.labels
    ]
    found = False
    for kind, group in (("ResourceClaim.parley.dev", claims), ("ResourceClaim.resource.k8s.io", mirrors)):
        for meta, users in group:
            since = _since(facts, meta.deletion_timestamp)
            if since is not None and since >= LONG:
                found = True
                pods = [user.name for user in users]
                about = f"{kind} {meta.namespace}/{meta.name}"
                if why := needed.get(meta.uid):
                    yield _needed(about, since, why)
                else:
                    yield _stuck(about, since, list(meta.finalizers), pods)
    if not found:
        yield ok("no claim has been terminating for long")


def _since(facts: Facts, time: str | None) -> float | None:
    return seconds_since(time or "", facts.now)


def _needed(about: str, since: float, why: str) -> Finding:
    text = f"was deleted {span(since)} ago, and still exists: {why}"
    return warning(text, "delete the claims that need it, or the pods that use them", about)


def _stuck(about: str, since: float, finalizers: Sequence[str], pods: Sequence[str]) -> Finding:
    text = f"was deleted {span(since)} ago, and waits for {listed(finalizers)}"
    if pods:
        return warning(f"{text}: {_pods(pods)} it", f"delete the pods that use it: {listed(pods)}", about)
    drivers = [name.removesuffix(_DRIVERS) for name in finalizers if name.endswith(_DRIVERS)]
    if drivers:
        remedy = f"start driver {listed(drivers)}, which has to deallocate what it holds"
    elif FINALIZER in finalizers:
        remedy = "check whether a controller leads, and whether a ClaimRelease of the claim waits for a node"
    else:
        remedy = "ask who set the finalizer"
    return error(text, remedy, about)


def _pods(pods: Sequence[str]) -> str:
    return f"{'pods' if len(pods) > 1 else 'pod'} {listed(pods)} {'use' if len(pods) > 1 else 'uses'}"


def releases(facts: Facts) -> Iterator[Finding]:
    """Nodes answer for what was taken from them by force."""
    waiting = [
        (release, since)
        for release in owed(facts.all(CLAIM_RELEASES))
        if (since := _since(facts, release.metadata.creation_timestamp)) is not None and since >= LONG
    ]
    nodes = {node["metadata"]["name"]: node for node in facts.all(RAW_NODES)} if waiting else {}
    for release, since in waiting:
        yield _unanswered(release, since, nodes.get(release.spec.node_name))
    if not waiting:
        yield ok("no confirmation by a node is overdue")


def _unanswered(release: ClaimRelease, since: float, node: Body | None) -> Finding:
    claim, name = f"{release.spec.claim.namespace}/{release.spec.claim.name}", release.spec.node_name
    about = f"ClaimRelease {release.metadata.name}"
    if not release.status.allocation_cleared:
        text = f"claim {claim} is still allocated after {span(since)}, so node {name} is not asked yet"
        return warning(text, "delete the pods that use the claim, or check whether a controller leads", about)
    text = (
        f"node {name} has not confirmed for {span(since)} that claim {claim} is not prepared: "
        "its devices stay taken"
    )
    if node is None:
        return warning(text, "the node is gone: check whether a controller leads, which releases them", about)
    if not _is_ready(node):
        remedy = f"bring node {name} back, or, if it is shut down, taint it {OUT_OF_SERVICE_TAINT}=:NoExecute"
        return error(f"{text}; it is not ready", remedy, about)
    remedy = f"check whether the node plugin works on node {name}; if it never will, kubectl delete prrelease "
    return error(text, remedy + release.metadata.name, about)


def _is_ready(node: Body) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def undecodable(facts: Facts) -> Iterator[Finding]:
    """Every object of Parley's kinds, and every mirror, can be read."""
    found = False
    for resource in (*OURS, BUILTIN_CLAIMS):
        listing = facts.listings[resource]
        if not isinstance(listing, Listing):
            found = True
            yield unknown(f"could not be checked: {listing.why}", listing.remedy)
            continue
        for stone in listing.tombstones:
            found = True
            name = "/".join(filter(None, (stone.namespace, stone.name)))
            yield warning(
                f"can't be decoded: {stone.reason}",
                "correct the object, or delete it; what it held stays held meanwhile",
                f"{resource.kind}.{resource.group} {name}",
            )
    if not found:
        yield ok("all objects can be decoded")
