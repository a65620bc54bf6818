"""A driver for disks that are attached over a fabric, which takes seconds to minutes: an asynchronous driver.

It asks the array (fabric.py, or any product with such an API) for everything, and keeps nothing that the array
does not know: a claim's volume has the claim's UID as its name. So a driver that is started again goes on where
the one before it stopped. Retries, deadlines, and showing progress to users are left to Parley.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar

import aiohttp
from pydantic import Field

from parley.api.models import ResourceClass
from parley.api.resources import CLASSES, Resource
from parley.sdk import Allocation, Answer, ClaimRequest, Driver, Held, Parameters, PermanentError, Request
from parley.sdk.checks import MAX_ALTERNATIVES


class Fabric(Parameters):
    """Parameters of a class."""

    fabric: Annotated[str, Field(pattern=r"^https?://[^/]+$", description="The array's address.")]


class Disk(Parameters):
    """Parameters of a claim."""

    size: Annotated[int, Field(alias="sizeGiB", ge=1, strict=True, description="The disk's size.")]


class Refused(Exception):
    """Raised when the array cannot do it now; Parley tries again, on another node if there is one."""


DiskClaim = ClaimRequest[Disk, Fabric]
DiskRequest = Request[Disk, Fabric]


class AttachedDriver(Driver[Disk, Fabric]):
    """Disks of all arrays that classes name. Every `interval` seconds it looks how far an attachment is."""

    name = "attached.example.com"
    parameters = Disk
    class_parameters = Fabric
    asynchronous = True
    watches: ClassVar[tuple[Resource[Any], ...]] = (CLASSES,)

    def __init__(self, interval: float = 1.0) -> None:
        self._interval = interval
        self._fabrics: set[str] = set()
        self._fabric_of: dict[str, str] = {}

    def observe(self, old: ResourceClass | None, new: ResourceClass | None) -> bool:
        """Learn which arrays there are; one that no class names any more may still have volumes."""
        class_ = new or old
        if class_ is None or class_.driver_name != self.name:
            return False
        if fabric := (class_.parameters or {}).get("fabric"):
            self._fabrics.add(fabric)
        return True

    def restore(self, held: Held) -> None:
        """Remember the array of a claim's disk."""
        self._fabric_of[held.uid] = (held.data or {})["fabric"]

    def forget(self, uid: str) -> None:
        """Nobody but Parley takes disks from the arrays."""
        self._fabric_of.pop(uid, None)

    async def consider(self, request: DiskRequest, nodes: Sequence[str]) -> Mapping[str, Answer]:
        """A node is viable if the fabric reaches it, and the array has room for all claims of the request.

        Raises aiohttp.ClientError if an array does not answer; Parley asks again later.
        """
        wanted = Counter[str]()
        for claim in request.claims:
            wanted[claim.class_parameters.fabric] += claim.parameters.size
        async with _session() as session:
            arrays = {fabric: await _ask(session, "GET", fabric) for fabric in wanted}
        answer = _answer(wanted, arrays, nodes)
        return {claim.name: answer for claim in request.claims}

    async def allocate(self, request: DiskRequest, node: str) -> Mapping[str, Allocation]:
        """Make a volume for each claim and wait until all are attached.

        Cancelled, it leaves them as they are: either `deallocate` follows, or another process goes on.
        """
        try:
            async with _session() as session:
                while True:
                    if await self._attached(session, request, node):
                        break
                    await asyncio.sleep(self._interval)
        except Exception:
            for claim in request.claims:
                await self.deallocate(claim.uid)
            raise
        return {claim.name: _allocation(claim) for claim in request.claims}

    async def deallocate(self, uid: str) -> None:
        """Detach and delete the claim's volume.

        After a restart nobody may know in which array it is, because it was not allocated yet: then all are asked.
        """
        known = self._fabric_of.get(uid)
        async with _session() as session:
            for fabric in [known] if known else sorted(self._fabrics):
                await _ask(session, "DELETE", f"{fabric}/volumes/{uid}")
        self.forget(uid)

    async def _attached(self, session: aiohttp.ClientSession, request: DiskRequest, node: str) -> bool:
        """Say what is wanted, which may be said again and again; returns whether it is done."""
        try:
            attachments = [await self._attach(session, claim, node) for claim in request.claims]
        except (aiohttp.ClientConnectionError, TimeoutError):
            request.progress("the fabric does not answer; it is asked again")
            return False
        for attachment in attachments:
            if attachment["state"] == "Failed":
                raise _refusal(
                    f"attaching to node {node} failed: {attachment['message']}", attachment["permanent"]
                )
        percent = min(attachment["percent"] for attachment in attachments)
        request.progress(f"attaching to node {node}: {percent} %")
        return all(attachment["state"] == "Attached" for attachment in attachments)

    async def _attach(self, session: aiohttp.ClientSession, claim: DiskClaim, node: str) -> Mapping[str, Any]:
        fabric = self._fabric_of[claim.uid] = claim.class_parameters.fabric
        volume = f"{fabric}/volumes/{claim.uid}"
        known = (await _ask(session, "PUT", volume, {"sizeGiB": claim.parameters.size}))["attachment"]
        if known and known["node"] != node:  # an earlier process had another node selected
            await _ask(session, "DELETE", volume)
            await _ask(session, "PUT", volume, {"sizeGiB": claim.parameters.size})
        attached = await _ask(session, "PUT", f"{volume}/attachment", {"node": node})
        attachment: Mapping[str, Any] = attached["attachment"]
        return attachment


def _answer(wanted: Mapping[str, int], arrays: Mapping[str, Mapping[str, Any]], nodes: Sequence[str]) -> Answer:
    """The same for all claims of the request, which have to be on one node."""
    for fabric, size in wanted.items():
        if (free := arrays[fabric]["freeGiB"]) < size:
            return Answer((), (), dict.fromkeys(nodes, f"{free} GiB free in {fabric}, {size} wanted"))
    reached = set.intersection(*(set(array["nodes"]) for array in arrays.values()))
    others = tuple(islice(sorted(reached - set(nodes)), MAX_ALTERNATIVES))
    far = {node: f"{' and '.join(wanted)} cannot be reached from it" for node in nodes if node not in reached}
    return Answer(tuple(node for node in nodes if node in reached), others, far)


def _allocation(claim: DiskClaim) -> Allocation:
    return Allocation(data={"fabric": claim.class_parameters.fabric, "volume": claim.uid})


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))


async def _ask(
    session: aiohttp.ClientSession, method: str, url: str, body: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """What the array said. Raises Refused or PermanentError if it was no."""
    async with session.request(method, url, json=body) as answer:
        found: Mapping[str, Any] = await answer.json()
    if answer.ok:
        return found
    raise _refusal(found["error"], found["permanent"])


def _refusal(words: str, permanent: bool) -> Exception:
    return PermanentError(words) if permanent else Refused(words)
