"""The checkpoint: the claims that this node has prepared, kept across restarts, because a claim may be deleted
before it is unprepared.

Decides the format of the file and when to refuse it. A file carries its version and a checksum over the
claims. Fields may be added within a version, because unknown ones are ignored; a change that an older plugin
would misunderstand raises the version, and the older plugin then refuses. A file of an older version is read
(`migration`) and written in the new one with the next change. A file that cannot be trusted is never replaced by
an empty one: devices that are in use would be handed out again.
"""

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec
import orjson
from pydantic import ValidationError

from parley_kubelet.edits import Edits
from parley_kubelet.state.durable import Folder
from parley_kubelet.state.migration import from_version_1

FILE: Final = "checkpoint.json"
VERSION: Final = 2


class CheckpointError(Exception):
    """Raised if the checkpoint is damaged or from a newer version; nothing may be prepared then."""


class ReportedDevice(msgspec.Struct, frozen=True):
    """A device of the claim as reported to the kubelet, with the claim's request that it serves."""

    request: str
    pool: str
    device: str


class HeldDevice(msgspec.Struct, frozen=True):
    """A device that is held for the claim."""

    pool: str
    name: str


Phase = Literal["preparing", "prepared", "unpreparing"]


class _HotFields(msgspec.Struct, frozen=True):
    """The fields that each call reads of many entries."""

    uid: str
    namespace: str
    name: str
    phase: Phase
    boot: str
    node: str
    results: tuple[ReportedDevice, ...]
    devices: tuple[HeldDevice, ...]


class _ColdFields(msgspec.Struct, frozen=True):
    """The fields that are decoded only when they are read."""

    handle: Any
    edits: dict[str, Any]
    state: Any


class CheckpointEntry(_HotFields, frozen=True):
    """A claim that this node holds something for, with all that is needed to unprepare it without the API.

    `phase` is `prepared` from a successful prepare until unprepare begins: only then may a container have it.
    `boot` is the machine's boot in which it was prepared, `node` the node's name at that time, each "" if not
    known. `edits` and `state` are what the driver returned. The entry is kept as JSON, `encoded`: a node has many
    entries, and seldom reads them.
    """

    encoded: bytes

    @classmethod
    def of(
        cls,
        *,
        uid: str,
        namespace: str,
        name: str,
        phase: Phase,
        boot: str,
        node: str = "",
        results: Sequence[ReportedDevice],
        devices: Sequence[HeldDevice],
        handle: Any,
        edits: Edits | None = None,
        state: Any = None,
    ) -> "CheckpointEntry":
        """An entry of these values, which must be JSON."""
        return cls._of(
            {
                "uid": uid,
                "namespace": namespace,
                "name": name,
                "phase": phase,
                "boot": boot,
                "node": node,
                "results": [msgspec.structs.asdict(result) for result in results],
                "devices": [msgspec.structs.asdict(device) for device in devices],
                "handle": handle,
                "edits": (edits or Edits()).model_dump(mode="json", by_alias=True),
                "state": state,
            }
        )

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "CheckpointEntry":
        """An entry from a file's JSON, without unknown fields. Raises msgspec's or pydantic's ValidationError."""
        edits = Edits.model_validate(content.get("edits", {}))
        known = {field: content[field] for field in (*_HotFields.__struct_fields__, "handle") if field in content}
        known.setdefault("node", "")  # earlier plugins did not write it
        entry = cls._of(
            {**known, "edits": edits.model_dump(mode="json", by_alias=True), "state": content.get("state")}
        )
        _decode_cold(entry.encoded)
        return entry

    @classmethod
    def _of(cls, content: Mapping[str, Any]) -> "CheckpointEntry":
        encoded = orjson.dumps([content], option=orjson.OPT_SORT_KEYS)  # as in the file: it may nest no deeper
        encoded = encoded[1:-1]  # a copy: what orjson returns holds on to 8 KB, however short it is
        return cls(**msgspec.structs.asdict(_decode_hot(encoded)), encoded=encoded)

    def with_changes(self, **changes: Any) -> "CheckpointEntry":
        """A copy with these fields changed."""
        content = orjson.loads(self.encoded)
        if "edits" in changes:
            changes["edits"] = changes["edits"].model_dump(mode="json", by_alias=True)
        return self._of({**content, **changes})

    @property
    def handle(self) -> Any:
        """The handle as the controller wrote it."""
        return _decode_cold(self.encoded).handle

    @property
    def edits(self) -> Edits:
        """The edits that containers get."""
        return Edits.model_validate(_decode_cold(self.encoded).edits)

    @property
    def state(self) -> Any:
        """The driver's state; None if it never returned one."""
        return _decode_cold(self.encoded).state

    @property
    def full_name(self) -> str:
        """The claim as namespace/name, for messages."""
        return f"{self.namespace}/{self.name}"


_decode_hot = msgspec.json.Decoder(_HotFields).decode
_decode_cold = msgspec.json.Decoder(_ColdFields).decode

Entries = Mapping[str, CheckpointEntry]
"""Checkpoint entries by the claim's UID."""


class Checkpoint:
    """The checkpoint file in the plugin's state folder. Another plugin may write it, too, in a rolling update: it
    is read each time."""

    def __init__(self, folder: Folder, node: str) -> None:
        self._folder = folder
        self._node = node
        self._path = folder.path / FILE
        self._cached: tuple[bytes | None, Entries] = (None, MappingProxyType({}))

    @property
    def cached(self) -> Entries:
        """The entries as last read or written."""
        return self._cached[1]

    def read(self) -> Entries:
        """All entries. Raises CheckpointError, or OSError if the disk fails."""
        data = self._folder.read(FILE)
        if data != self._cached[0]:
            self._cached = (data, MappingProxyType({}) if data is None else self._parse_entries(data))
        return self._cached[1]

    def write(self, entries: Entries) -> Entries:
        """Replace the file; returns its entries. Raises OSError: the file is then the old or the new one, see
        `read`."""
        held = {uid: entries[uid] for uid in sorted(entries)}
        claims = [entry.encoded for entry in held.values()]
        checksum = _checksum_of(b"[" + b",".join(claims) + b"]")
        data = b'{"version":%d,"checksum":"%s","claims":[\n%s\n]}\n' % (
            VERSION,
            checksum.encode(),
            b",\n".join(claims),
        )
        self._folder.write(FILE, data)
        self._cached = (data, MappingProxyType(held))
        return self._cached[1]

    def _parse_entries(self, data: bytes) -> Entries:
        content = self._decode(data)
        self._check(content)
        try:
            claims = content["claims"]
            if content["version"] == 1:
                claims = [from_version_1(claim, self._node) for claim in claims]
            entries = [CheckpointEntry.read(claim) for claim in claims]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise self._damaged(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        except (msgspec.ValidationError, AttributeError) as error:
            raise self._damaged(str(error)) from None
        return MappingProxyType({entry.uid: entry for entry in entries})

    def _decode(self, data: bytes) -> dict[str, Any]:
        try:
            content = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise self._damaged(f"it is not JSON ({error})") from None
        if not isinstance(content, dict):
            raise self._damaged("it is not a JSON object")
        if not isinstance(version := content.get("version"), int) or version < 1:
            raise self._damaged(f"version={version!r} was never written")
        return content

    def _check(self, content: dict[str, Any]) -> None:
        if content["version"] > VERSION:
            raise CheckpointError(
                f"checkpoint {self._path}: version={content['version']} is newer than {VERSION}, which this"
                " parley-kubelet writes: start the newer version again, or drain the node before going back"
            )
        if not isinstance(content.get("claims"), list):
            raise self._damaged("it has no list of claims")
        if (found := content.get("checksum")) != (right := _checksum(content["claims"])):
            raise self._damaged(f"checksum={found!r} should be {right!r}")

    def _damaged(self, how: str) -> CheckpointError:
        return CheckpointError(
            f"checkpoint {self._path} is damaged, {how}: drain the node of pods with claims, remove the file,"
            " and start parley-kubelet again"
        )


def _checksum(claims: list[Any]) -> str:
    return _checksum_of(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS))


def _checksum_of(canonical: bytes) -> str:
    """The checksum of the claims as JSON with sorted keys and no spaces, however the file is formatted."""
    return "sha256:" + hashlib.sha256(canonical).hexdigest()
