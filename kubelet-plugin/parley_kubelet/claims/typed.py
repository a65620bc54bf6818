"""Converts checkpoint entries to what a driver's hooks get: claims with the driver's own type of handle.

Also finds the rivals of a claim: other claims that hold its devices. The driver decides whether they may share.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import orjson
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
        """The entry as the hooks get it. Raises Refused if the handle does not pass this driver version's
        schema."""
        return self._held(
            entry,
            "the handle in the checkpoint: handle",
            "start the version of the driver again that prepared the claim",
        )

    def all(self, entries: Iterable[CheckpointEntry]) -> Iterator[HeldClaim[Any]]:
        """The entries that can be converted; others are logged."""
        for entry in entries:
            try:
                yield self.held(entry)
            except Refused as refusal:
                log.warning("entry left out", driver=self._driver.name, reason=str(refusal))

    def rivals(self, entry: CheckpointEntry, entries: Entries) -> Sequence[HeldClaim[Any]]:
        """Other claims among `entries` that hold devices of this entry."""
        return _Rivals(self, entry, entries)

    def current_name(self, entry: CheckpointEntry, device: HeldDevice) -> DeviceName:
        """A device of the entry by its current name: the node's own pool is named as the node, which may have been
        renamed."""
        pool = self._driver.node if entry.node == device.pool else device.pool
        return DeviceName(pool, device.name)

    def _held(self, entry: CheckpointEntry, field: str, remedy: str) -> HeldClaim[Any]:
        try:
            handle = self._driver.handle.model_validate(entry.handle)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join((field, *map(str, first["loc"])))
            # without the value: a handle may contain secrets of the driver's two parts
            raise Refused(f"claim {entry.full_name}: {where}: {first['msg']}: {remedy}") from None
        devices = tuple(self.current_name(entry, device) for device in entry.devices)
        claim = NodeClaim(entry.namespace, entry.name, entry.uid, devices, handle)
        return HeldClaim(claim, entry.state)


def check_state(claim: str, state: Any) -> None:
    """Raises Refused if a driver returned a state that the checkpoint can't keep."""
    try:
        orjson.dumps(dict(state))
    except (TypeError, ValueError) as error:
        raise Refused(
            f"claim {claim}: the driver returned a state that is not JSON ({error}): correct the driver"
        ) from None


class _Rivals(Sequence[HeldClaim[Any]]):
    """Rivals, found and converted only if the driver reads them: thousands of claims may share a device."""

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
        current_name = self._typed.current_name
        devices = frozenset(current_name(self._entry, device) for device in self._entry.devices)
        names = frozenset(device.device for device in devices)  # most others have none of that name
        return tuple(
            self._typed.held(other)
            for uid, other in self._entries.items()
            if uid != self._entry.uid
            and any(device.name in names and current_name(other, device) in devices for device in other.devices)
        )
