"""What this node has prepared, kept across restarts: the claim may be gone when it is to be unprepared.

Decides the format of the file and when to refuse it. A file carries its version and a checksum over the
claims. Fields may be added within a version, because unknown ones are ignored; a change that an older plugin
would misunderstand raises the version, and the older plugin then refuses. A file that cannot be trusted is
never replaced by an empty one: devices that are in use would be handed out again.
"""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson
from pydantic import ValidationError

from parley.api.meta import Model
from parley_kubelet.devices import NodeDevice
from parley_kubelet.durable import Folder

FILE: Final = "checkpoint.json"
VERSION: Final = 1


class CheckpointError(Exception):
    """Raised when the checkpoint is damaged or from a newer version; nothing may be prepared then."""


class Result(Model):
    """One result of the claim's allocation, as the kubelet wants it repeated."""

    request: str
    pool: str
    device: str


class PreparedClaim(Model):
    """A claim that is prepared on this node, with all that is needed to do it again without the API."""

    uid: str
    namespace: str
    name: str
    shared: bool
    results: tuple[Result, ...]
    devices: tuple[NodeDevice, ...]


PreparedClaims = Mapping[str, PreparedClaim]
"""By the claim's UID."""


class Checkpoint:
    """The file in the plugin's state folder. It is read anew each time: another plugin may have written it."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._path = folder.path / FILE

    def read(self) -> PreparedClaims:
        """All prepared claims. Raises CheckpointError, or OSError if the disk fails."""
        data = self._folder.read(FILE)
        if data is None:
            return MappingProxyType({})
        content = self._decode(data)
        self._check(content)
        try:
            claims = [PreparedClaim.model_validate(claim) for claim in content["claims"]]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise self._damaged(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return MappingProxyType({claim.uid: claim for claim in claims})

    def write(self, claims: PreparedClaims) -> None:
        """Replace the file. Raises OSError, and then the old one stands."""
        content = [claims[uid].model_dump(mode="json", by_alias=True) for uid in sorted(claims)]
        body = {"version": VERSION, "checksum": _checksum(content), "claims": content}
        self._folder.write(FILE, orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

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
    return "sha256:" + hashlib.sha256(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS)).hexdigest()
