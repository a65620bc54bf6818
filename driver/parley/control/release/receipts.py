"""Bodies of ClaimReleases, and the condition that users see while a node may still have a claim prepared. Pure.

There is one ClaimRelease for each built-in claim and node, with a name made of both, so it can't be created twice.
It has no namespace and no owner: the device counts as taken while it exists, even if claim, pod and namespace are
gone. Requests to remove data have other names: one that comes late, and is deleted, is never in place of a receipt
that a node owes. Those for lost nodes (`leftovers`) have other names, too, and keep nothing from being free.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator

import orjson

from parley.api.conditions import ConditionUpdate
from parley.api.models import ClaimRelease
from parley.api.names import API_VERSION, CONDITION_RELEASING, OUT_OF_SERVICE_TAINT
from parley.control.holding import Holding, PreparedOn
from parley.sdk.recorded import allocation_record

Body = dict[str, object]

REMOVING_DATA = "RemovingData"
"""The reason of the condition of a claim that has ended, and whose nodes have to remove its data."""

_HASHED = 16
"""Characters of the hash that stands for a node's name, which may have 253 itself, in the name of a record."""


def record_name(prepared: PreparedOn, *, removing: bool = False) -> str:
    """The name of the ClaimRelease: the claim's UID, and a hash of the node's name."""
    hashed = hashlib.sha256(prepared.node.encode()).hexdigest()[:_HASHED]
    return f"{prepared.claim_uid}-{'data-' if removing else ''}{hashed}"


def record(holding: Holding, prepared: PreparedOn) -> Body:
    """The ClaimRelease by which the node owes a receipt for one of the holding's built-in claims."""
    removing = holding.removing
    return _release(record_name(prepared, removing=removing), _spec(holding, prepared, removing=removing))


def lost_node_record(holding: Holding, node: str) -> tuple[str, Body]:
    """Name and body of the ClaimRelease for data of the holding on a lost node, to be removed when the node is
    back. Its name is unique to the allocation: the same claim may lose the same node again."""
    prepared = holding.data_on(node)
    spec = _spec(holding, prepared, removing=True)
    hashed = orjson.dumps([node, spec["allocation"]], option=orjson.OPT_SORT_KEYS)
    name = f"{prepared.claim_uid}-lost-{hashlib.sha256(hashed).hexdigest()[:_HASHED]}"
    return name, _release(name, {**spec, "nodeLost": True})


def is_owed(release: ClaimRelease) -> bool:
    """Whether the node owes a receipt, so that the claim is not free before the ClaimRelease is gone. Nothing
    waits for that of a lost node."""
    return not release.spec.node_lost


def owed(releases: Iterable[ClaimRelease]) -> Iterator[ClaimRelease]:
    """The ClaimReleases for which a node owes a receipt."""
    return (release for release in releases if is_owed(release))


def of_lost_nodes(releases: Iterable[ClaimRelease]) -> Iterator[ClaimRelease]:
    """The ClaimReleases for lost nodes."""
    return (release for release in releases if not is_owed(release))


def _spec(holding: Holding, prepared: PreparedOn, *, removing: bool) -> Body:
    uid = prepared.claim_uid
    return {
        "claim": {"namespace": holding.namespace, "name": holding.shown_by.get(uid, holding.claim), "uid": uid},
        "nodeName": prepared.node,
        "driverName": holding.driver,
        "holdingUid": holding.uid,
        "resourceClassName": holding.class_name,
        "units": holding.units,
        "allocation": allocation_record(
            holding.driver, holding.allocation, holding.node, shareable=holding.shareable
        ),
        **({"removeData": True} if removing else {}),
        **_running(holding),
    }


def _running(holding: Holding) -> Body:
    """The field `running`: the pod that still runs with a generated claim that somebody deleted. Also claims that
    are not marked as named may be none: a named one that was restored from its mirror, without its owner."""
    user = next(iter(holding.pods.values()), None)
    if holding.named or not holding.entry or not holding.joinable or user is None:
        return {}
    return {"running": {"name": user.name, "uid": user.uid, "podClaimName": holding.entry}}


def _release(name: str, spec: Body) -> Body:
    return {"apiVersion": API_VERSION, "kind": "ClaimRelease", "metadata": {"name": name}, "spec": spec}


def is_of(release: ClaimRelease, holding: Holding) -> bool:
    """Whether the ClaimRelease is for this very allocation of the holding, not for an earlier one."""
    handles = release.spec.allocation.handles
    data = (handles[0].data if handles else None) or {}
    return release.spec.node_name in (holding.nodes or ()) and data == (holding.allocation.data or {})


def prepared_by(record: ClaimRelease) -> PreparedOn:
    """The built-in claim that may still be prepared, and the node, by the ClaimRelease."""
    return PreparedOn(record.spec.claim.uid, record.spec.node_name)


def releasing_condition(holding: Holding) -> ConditionUpdate:
    """The condition of a claim while nodes owe receipts. Its age is the time waited."""
    reason = REMOVING_DATA if holding.removing else "ForcedDeletion"
    return ConditionUpdate(CONDITION_RELEASING, True, reason, waits_for(holding))


def waits_for(holding: Holding) -> str:
    """The message about a claim for which nodes owe receipts: what is waited for, and the remedy."""
    nodes = holding.owing_nodes
    return _removal(nodes) if holding.removing else _forced_deletion(nodes)


def _removal(nodes: Collection[str]) -> str:
    one, names = len(nodes) == 1, ", ".join(nodes)
    return (
        f"the node plugin of {'node' if one else 'nodes'} {names} has yet to remove what pods left there for it: "
        f"see its log, or, if {'the node is' if one else 'they are'} shut down, taint "
        f"{'it' if one else 'them'} {OUT_OF_SERVICE_TAINT}"
    )


def _forced_deletion(nodes: Collection[str]) -> str:
    one, names = len(nodes) == 1, ", ".join(nodes)
    who = f"a pod that used it on node {names} was" if one else f"pods that used it on nodes {names} were"
    plugin = "the node plugin there has" if one else "the node plugins there have"
    remedy = (
        "the node back, or, if it is shut down, taint it"
        if one
        else "them back, or taint those that are shut down"
    )
    return (
        f"{who} deleted by force, and {plugin} yet to confirm that it is not prepared any more: "
        f"bring {remedy} {OUT_OF_SERVICE_TAINT}"
    )
