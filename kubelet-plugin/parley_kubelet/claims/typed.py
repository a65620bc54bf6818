"""Entries of the checkpoint as a driver's hooks get them: with the driver's own type of handle.

Which other claims a new one competes with is found here, too; whether it may is the driver's affair.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import structlog
from pydantic import ValidationError

from parley_kubelet.hooks import DeviceName, HeldClaim, NodeClaim, NodeDriver, Refused
from parley_kubelet.state.checkpoint import CheckpointEntry, Entries, HeldDevice

log = structlog.get_logger(__name__)


class TypedEntries:
    """Converts the entries of one driver."""

    def __init__(self, driver: NodeDriver[Any, Any]) -> None:
        self._driver = driver

    def check(self, entry: CheckpointEntry, field: str) -> None:
        """Raises Refused, naming the field of the claim, if the handle does not pass the driver's schema."""
        self._held(
            entry,
            field,
            "run versions of the embedded driver and in parley-kubelet that belong together",
        )

    def held(self, entry: CheckpointEntry) -> HeldClaim[Any]:
        """What the hooks get. Raises Refused if a newer driver does not understand the handle any more."""
        return self._held(
            entry,
            "the handle in the checkpoint: handle",
            "start the version of the driver again that prepared the claim",
        )

    def all(self, entries: Iterable[CheckpointEntry]) -> Iterator[HeldClaim[Any]]:
        """All that can be converted."""
        for entry in entries:
            try:
                yield self.held(entry)
            except Refused as refusal:
                log.warning("entry left out", driver=self._driver.name, reason=str(refusal))

    def rivals(self, entry: CheckpointEntry, entries: Entries) -> Sequence[HeldClaim[Any]]:
        """What is held of the entry's devices for other claims, while the entries are these."""
        return _Rivals(self, entry, entries)

    def place(self, entry: CheckpointEntry, device: HeldDevice) -> DeviceName:
        """A device of the entry by the names of today: the node's own pool is named as the node is."""
        pool = self._driver.node if entry.node == device.pool else device.pool
        return DeviceName(pool, device.name)

    def _held(self, entry: CheckpointEntry, field: str, remedy: str) -> HeldClaim[Any]:
        try:
            handle = self._driver.handle.model_validate(entry.handle)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join((field, *map(str, first["loc"])))
            # not the value: a handle may have what only the driver's two parts shall know
            raise Refused(f"claim {entry.full_name}: {where}: {first['msg']}: {remedy}") from None
        devices = tuple(self.place(entry, device) for device in entry.devices)
        claim = NodeClaim(entry.namespace, entry.name, entry.uid, devices, handle)
        return HeldClaim(claim, entry.state)


class _Rivals(Sequence[HeldClaim[Any]]):
    """Found and converted only for a driver that looks at them: thousands of claims may have one device."""

    def __init__(self, typed: TypedEntries, entry: CheckpointEntry, entries: Entries) -> None:
        self._typed = typed
        self._entry = entry
        self._entries = entries

    def __getitem__(self, index: Any) -> Any:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def _found(self) -> tuple[HeldClaim[Any], ...]:
        place = self._typed.place
        devices = frozenset(place(self._entry, device) for device in self._entry.devices)
        names = frozenset(device.device for device in devices)  # most others have none of that name
        return tuple(
            self._typed.held(other)
            for uid, other in self._entries.items()
            if uid != self._entry.uid
            and any(device.name in names and place(other, device) in devices for device in other.devices)
        )
