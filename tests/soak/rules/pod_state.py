"""Pods as far as the rules need them: their claims, and what they were started with."""

from dataclasses import dataclass, field

from tests.soak.rules.mirrors import Device, Identity, Json, Name

Use = tuple[str, Identity]
"""A pod, by its UID, and a claim of it."""


@dataclass(slots=True)
class PodState:
    """One pod. It is not `alive` if it has ended, or is being deleted and was never bound. Each of `claims` is the
    pod's entry, the claim's name, and whether it is a named claim. `uses` are the devices that it was started
    with, and whether only shares of them, by claim; `prepared` has the UIDs of the built-in claims that its node
    has prepared."""

    name: Name
    uid: str
    node: str
    alive: bool
    running: bool
    claims: tuple[tuple[str, str, bool], ...]
    uses: dict[Identity, tuple[tuple[Device, ...], bool]] = field(default_factory=dict)
    prepared: dict[Identity, str] = field(default_factory=dict)


def pod_state(body: Json) -> PodState:
    """The state of a pod that was not started yet, as far as is known."""
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    generated = {s["name"]: s.get("resourceClaimName") or "" for s in status.get("resourceClaimStatuses") or ()}
    claims = tuple(
        (e["name"], e.get("resourceClaimName") or generated.get(e["name"], ""), "resourceClaimName" in e)
        for e in spec.get("resourceClaims") or ()
    )
    return PodState(
        name=(meta["namespace"], meta["name"]),
        uid=meta["uid"],
        node=spec.get("nodeName", ""),
        alive=status.get("phase") not in ("Succeeded", "Failed") and not _is_deleted_unbound(body),
        running=status.get("phase") == "Running",
        claims=claims,
    )


def _is_deleted_unbound(body: Json) -> bool:
    return bool(body["metadata"].get("deletionTimestamp") and not body["spec"].get("nodeName"))
