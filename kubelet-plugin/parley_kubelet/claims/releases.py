"""Gives receipts: what was allocated on this node is not prepared here any more, and may be given to others.

The controller asks for a receipt by a label on a ResourceClaim of Parley's, with this node and the UID of the
built-in claim in annotations. The receipt is that the label goes, with the annotations, or the object if it exists
for that alone. Decides when: as soon as the driver's checkpoint on this node has no entry for that UID and no call
for it is under way. Asking for a receipt, and what happens until it comes, is the controller's affair.

Only the plugin of the claim's driver may answer: on the same node another plugin knows nothing of it. The driver
is named by the claim's status, or else by its class.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import structlog

from parley.api.names import (
    CLAIM_UID_ANNOTATION,
    RELEASE_RECORD_LABEL,
    RELEASING_FROM_ANNOTATION,
    RELEASING_LABEL,
)
from parley.api.resources import CLAIMS, CLASSES
from parley.kube.client import ApiError, Client, NotFound, OutcomeUnknown
from parley.kube.reflector import Reflector, Selection
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.state.checkpoint import CheckpointError

AGAIN: Final = 3.0
"""Seconds after which claims that are still prepared are looked at again: a second plugin of a rolling update may
have unprepared them."""

Claim = Mapping[str, Any]

log = structlog.get_logger(__name__)


class Receipts:
    """Answers for the drivers of this process, by their names, on one node."""

    def __init__(self, client: Client, node: str, drivers: Mapping[str, Preparation]) -> None:
        self._client = client
        self._node = node
        self._drivers = drivers
        self._asked = asyncio.Event()
        self._told: set[str] = set()
        self._given: set[tuple[str, str]] = set()
        self._watch: Reflector[dict[str, Any]] = Reflector(
            client,
            CLAIMS.untyped(),
            Selection(label_selector=f"{RELEASING_LABEL}=true"),
            on_change=lambda _old, _new: self._asked.set(),
            transform=_kept,
        )

    async def run(self) -> None:
        """Give receipts until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            for preparation in self._drivers.values():
                group.create_task(self._listen(preparation))
            while True:
                await self._news()
                await self.look()

    async def look(self) -> None:
        """Give the receipts that can be given now."""
        for claim in self._waiting():
            try:
                await self._answer(claim)
            except (ApiError, OutcomeUnknown, CheckpointError, OSError) as error:
                log.warning("receipt not given yet", claim=_name(claim), reason=str(error))

    def _waiting(self) -> list[Claim]:
        mine = [c for c in self._watch.values() if _annotation(c, RELEASING_FROM_ANNOTATION) == self._node]
        self._told &= {_uid(claim) for claim in mine}
        self._given &= {_version(claim) for claim in mine}
        return [claim for claim in mine if _version(claim) not in self._given]

    async def _news(self) -> None:
        """Until something was asked or given back; not longer than `AGAIN` while somebody waits."""
        try:
            async with asyncio.timeout(AGAIN if self._waiting() else None):
                await self._asked.wait()
        except TimeoutError:
            return
        self._asked.clear()

    async def _listen(self, preparation: Preparation) -> None:
        while True:
            await preparation.released.wait()
            preparation.released.clear()
            self._asked.set()

    async def _answer(self, claim: Claim) -> None:
        uids = [uid for uid in _annotation(claim, CLAIM_UID_ANNOTATION).split(",") if uid]
        named = await self._named(claim)
        if not uids:
            self._tell_once(claim, f"it has no annotation {CLAIM_UID_ANNOTATION}")
        elif not named:
            self._tell_once(claim, "neither the claim nor its class names a driver")
        mine = [self._drivers[driver] for driver in named if driver in self._drivers]
        if uids and mine and not any([await preparation.holds(uid) for preparation in mine for uid in uids]):
            await self._give(claim)

    def _tell_once(self, claim: Claim, why: str) -> None:
        if _uid(claim) not in self._told:
            self._told.add(_uid(claim))
            log.warning("no receipt can be given", claim=_name(claim), reason=why)

    async def _named(self, claim: Claim) -> frozenset[str]:
        """The drivers that the claim is of."""
        status = claim.get("status") or {}
        handles = (status.get("allocation") or {}).get("handles") or ()
        named = [status.get("driverName"), *(handle.get("driverName") for handle in handles)]
        return _present(named) or _present([await self._of_class(claim)])

    async def _of_class(self, claim: Claim) -> str | None:
        name = (claim.get("spec") or {}).get("resourceClassName")
        try:
            return (await self._client.get(CLASSES, name)).driver_name if name else None
        except NotFound:
            return None

    async def _give(self, claim: Claim) -> None:
        meta = claim["metadata"]
        try:
            if (meta.get("labels") or {}).get(RELEASE_RECORD_LABEL) == "true":
                await self._client.delete(
                    CLAIMS,
                    meta["name"],
                    meta["namespace"],
                    uid=meta["uid"],
                    resource_version=meta["resourceVersion"],
                )
            else:
                await self._client.patch(CLAIMS, meta["name"], _receipt(meta), meta["namespace"])
        except NotFound:
            return
        self._given.add(_version(claim))
        uid = _annotation(claim, CLAIM_UID_ANNOTATION)
        log.info("receipt given: not prepared on this node", claim=_name(claim), uid=uid, node=self._node)


def _kept(claim: dict[str, Any]) -> dict[str, Any]:
    """What is read here of a claim: users may write much else into it."""
    meta, spec, status = claim["metadata"], claim.get("spec") or {}, claim.get("status") or {}
    notes = meta.get("annotations") or {}
    handles = (status.get("allocation") or {}).get("handles") or ()
    return {
        "metadata": {
            **{name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion")},
            "labels": {RELEASE_RECORD_LABEL: (meta.get("labels") or {}).get(RELEASE_RECORD_LABEL)},
            "annotations": {name: notes[name] for name in _NOTES if name in notes},
        },
        "spec": {"resourceClassName": spec.get("resourceClassName")},
        "status": {
            "driverName": status.get("driverName"),
            "allocation": {"handles": [{"driverName": handle.get("driverName")} for handle in handles]},
        },
    }


_NOTES: Final = (RELEASING_FROM_ANNOTATION, CLAIM_UID_ANNOTATION)


def _receipt(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {
            "resourceVersion": meta["resourceVersion"],
            "labels": {RELEASING_LABEL: None},
            "annotations": {RELEASING_FROM_ANNOTATION: None, CLAIM_UID_ANNOTATION: None},
        }
    }


def _present(names: Iterable[str | None]) -> frozenset[str]:
    return frozenset(name for name in names if name)


def _annotation(claim: Claim, name: str) -> str:
    return str((claim["metadata"].get("annotations") or {}).get(name, ""))


def _uid(claim: Claim) -> str:
    return str(claim["metadata"]["uid"])


def _version(claim: Claim) -> tuple[str, str]:
    return _uid(claim), str(claim["metadata"]["resourceVersion"])


def _name(claim: Claim) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
