"""Parley's allocation as recorded in a built-in claim's JSON, read without any of Parley's own code."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.soak.kinds.names import STANDALONE_DRIVER, ZONE_OF

Json = dict[str, Any]
Device = tuple[str, str]
"""Pool and name."""
Name = tuple[str, str]
"""Namespace and name."""
Identity = tuple[str, str]
"""A claim, also after it was recreated: see `Record`."""

ALLOCATED = "parley.dev/allocated"


@dataclass(frozen=True, slots=True)
class Record:
    """One claim. `nodes` and `devices` are those of a definite allocation, () without one; `offer` is set if the
    nodes were offered, and devices found on one of them. `uses` is the UID of a claim that it needs, or "".
    `tokens` are allocated tokens, usable on every node, or in one zone: then there are neither nodes nor
    devices. `folder` is the name of what its pods leave on nodes, where they do (`data`).

    `identity` stays the same for a claim that is recreated: the pod's UID and entry, or the Parley claim's UID.
    """

    uid: str
    name: Name
    identity: tuple[str, str]
    exclusive: bool
    users: tuple[str, ...]
    allocated: bool
    definite: bool
    nodes: tuple[str, ...]
    devices: tuple[Device, ...]
    shared: bool
    offer: bool
    uses: str
    tokens: int
    zone: str
    folder: str

    def is_usable_on(self, node: str) -> bool:
        """Whether a pod there can have what is allocated."""
        if self.tokens:
            return self.zone in ("", ZONE_OF[node])
        return node in self.nodes and all(pool == node for pool, _ in self.devices)


def are_standalone(devices: Iterable[Device]) -> bool:
    """Whether they are the standalone driver's."""
    return any(name.startswith("far-") for _, name in devices)


def is_standalone(claim: Json) -> bool:
    """Whether the standalone driver has recorded an allocation in the Parley claim."""
    status = claim.get("status") or {}
    return bool(status.get("allocation")) and status.get("driverName") == STANDALONE_DRIVER


def identity_of_claim(meta: Json) -> tuple[str, str]:
    """Of a Parley claim: that of the generated claim for which it stands, or its own."""
    entry = (meta.get("labels") or {}).get("parley.dev/generated-for")
    if entry is None:
        return meta["uid"], ""
    owner: Json = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), {})
    return owner.get("uid", ""), entry


def is_parleys(body: Json) -> bool:
    """Whether the claim is one that only Parley may allocate."""
    requests = body["spec"].get("devices", {}).get("requests") or []
    return [r.get("exactly", {}).get("deviceClassName") for r in requests] == ["being-negotiated.parley.dev"]


def read(body: Json) -> Record:
    """The claim's record."""
    meta, status = body["metadata"], body.get("status") or {}
    allocation = status.get("allocation")
    handle = _handle(status, allocation) if allocation else None
    devices = (handle or {}).get("devices") or []
    owner: Json = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), {})
    return Record(
        uid=meta["uid"],
        name=(meta["namespace"], meta["name"]),
        identity=identity(meta),
        exclusive=body["spec"]["devices"]["requests"][0]["name"] != "shareable" or owner.get("kind") == "Pod",
        users=tuple(user["uid"] for user in status.get("reservedFor") or ()),
        allocated=allocation is not None,
        definite=handle is not None,
        nodes=tuple(nodes_of(allocation)) if allocation else (),
        devices=tuple((d["pool"], d["device"]) for d in devices),
        shared=bool((handle or {}).get("shared")),
        offer=allocation is not None and is_offer(allocation),
        uses=(handle or {}).get("uses", ""),
        tokens=(handle or {}).get("count", 0) if "pool" in (handle or {}) else 0,
        zone=next(_zones_of(allocation), "") if allocation else "",
        folder=(handle or {}).get("folder", ""),
    )


def identity(meta: Json) -> tuple[str, str]:
    """See `Record`."""
    owner: Json = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), {})
    if owner.get("kind") == "Pod":
        return owner["uid"], meta.get("annotations", {}).get("resource.kubernetes.io/pod-claim-name", "")
    return owner.get("uid", ""), ""


def is_offer(allocation: Json) -> bool:
    """Whether it leaves the node to the scheduler."""
    return any(ALLOCATED in (r.get("bindingConditions") or ()) for r in allocation["devices"].get("results") or ())


def _handle(status: Json, allocation: Json) -> Json | None:
    """What the driver wrote for its node part, if a driver has allocated."""
    if not is_offer(allocation):
        configs = allocation["devices"].get("config") or []
        return configs[0]["opaque"]["parameters"] if configs else None
    for device in status.get("devices") or ():
        if any(c["type"] == ALLOCATED and c["status"] == "True" for c in device.get("conditions") or ()):
            found: Json = device.get("data") or {}
            return found
    return None


def _zones_of(allocation: Json) -> Iterator[str]:
    for term in allocation.get("nodeSelector", {}).get("nodeSelectorTerms") or ():
        for wanted in term.get("matchExpressions") or ():
            yield from wanted["values"]


def nodes_of(allocation: Json) -> Iterator[str]:
    """The nodes that the allocation's selector names."""
    for term in allocation.get("nodeSelector", {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            yield from field["values"]


def listed(devices: Iterable[Device]) -> str:
    """The devices in a message."""
    return " ".join("/".join(device) for device in devices)
