"""What this node has prepared, kept across restarts: the claim may be gone when it is to be unprepared.

Decides the format of the file and when to refuse it. A file carries its version and a checksum over the
claims. Fields may be added within a version, because unknown ones are ignored; a change that an older plugin
would misunderstand raises the version, and the older plugin then refuses. A file of an older version is read
(`migration`) and written in the new one with the next change. A file that cannot be trusted is never replaced by
an empty one: devices that are in use would be handed out again.
"""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import orjson
from pydantic import ValidationError

from parley.api.meta import Model
from parley_kubelet.durable import Folder
from parley_kubelet.edits import Edits
from parley_kubelet.migration import from_version_1

FILE: Final = "checkpoint.json"
VERSION: Final = 2


class CheckpointError(Exception):
    """Raised when the checkpoint is damaged or from a newer version; nothing may be prepared then."""


class Result(Model):
    """A device of the claim as the kubelet is told of it, with the claim's request that it serves."""

    request: str
    pool: str
    device: str


class HeldDevice(Model):
    """A device that nobody else may have meanwhile."""

    pool: str
    name: str


class Entry(Model):
    """A claim that something is held for on this node, with all that is needed to go on without the API.

    `phase` is `prepared` from a successful prepare until unprepare begins: only then may a container have it.
    `boot` is the machine's boot in which it was prepared, "" if that is not known. `edits` and `state` are what
    the driver returned.
    """

    uid: str
    namespace: str
    name: str
    phase: Literal["preparing", "prepared", "unpreparing"]
    boot: str
    results: tuple[Result, ...]
    devices: tuple[HeldDevice, ...]
    handle: Any
    edits: Edits = Edits()
    state: Any = None

    @property
    def full_name(self) -> str:
        """For people: namespace/name."""
        return f"{self.namespace}/{self.name}"


Entries = Mapping[str, Entry]
"""By the claim's UID."""


class Checkpoint:
    """The file in the plugin's state folder. Another plugin may write it, too: it is read each time."""

    def __init__(self, folder: Folder, node: str) -> None:
        self._folder = folder
        self._node = node
        self._path = folder.path / FILE
        self._known: tuple[bytes | None, Entries] = (None, MappingProxyType({}))
        self._encoded: dict[str, tuple[Entry, bytes]] = {}

    def read(self) -> Entries:
        """All entries. Raises CheckpointError, or OSError if the disk fails."""
        data = self._folder.read(FILE)
        if data != self._known[0]:
            self._known = (data, MappingProxyType({}) if data is None else self._entries(data))
        return self._known[1]

    def write(self, entries: Entries) -> Entries:
        """Replace the file; returns what it holds. Raises OSError, and then `read` tells which one stands."""
        self._encoded = {uid: self._encode(entries[uid]) for uid in sorted(entries)}
        claims = [encoded for _, encoded in self._encoded.values()]
        checksum = _checksum_of(b"[" + b",".join(claims) + b"]")
        data = b'{"version":%d,"checksum":"%s","claims":[\n%s\n]}\n' % (
            VERSION,
            checksum.encode(),
            b",\n".join(claims),
        )
        self._folder.write(FILE, data)
        self._known = (data, MappingProxyType({uid: entry for uid, (entry, _) in self._encoded.items()}))
        return self._known[1]

    def _encode(self, entry: Entry) -> tuple[Entry, bytes]:
        """Kept for as long as the entry is the same: a write is then little more than copying."""
        known = self._encoded.get(entry.uid)
        if known is not None and known[0] is entry:
            return known
        encoded = orjson.dumps(entry.model_dump(mode="json", by_alias=True), option=orjson.OPT_SORT_KEYS)
        return entry, bytes(
            memoryview(encoded)
        )  # a copy: what orjson returns holds on to 8 KB, however short it is

    def _entries(self, data: bytes) -> Entries:
        content = self._decode(data)
        self._check(content)
        try:
            claims = content["claims"]
            if content["version"] == 1:
                claims = [from_version_1(claim, self._node) for claim in claims]
            entries = [Entry.model_validate(claim) for claim in claims]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise self._damaged(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
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
    """Of the claims as JSON with sorted keys and no spaces, however the file is written."""
    return "sha256:" + hashlib.sha256(canonical).hexdigest()
