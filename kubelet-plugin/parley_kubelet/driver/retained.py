"""Directories that stay on the node when their claims have ended, for an administrator to fetch or remove.

    ROOT/retained/NAMESPACE/CLAIM.ID.BYTES.TIME

ID is the workspace's, BYTES the size promised to it, TIME when it was retained (UTC). No directory here is ever
given to a claim again. A namespace keeps as many as the class of the last ended claim says; the oldest are
removed. Files of other names, which an administrator put here, are left alone.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

import structlog

from parley.kube.clock import Clock, utc
from parley_kubelet.driver import trees

RETAINED: Final = "retained"

_LONGEST: Final = 120
"""The most characters of the claim's name in the name of its directory, which may have 255."""

_NAME: Final = re.compile(r".+\.(?P<id>[0-9a-zA-Z-]+)\.(?P<bytes>[0-9]{1,19})\.(?P<time>[0-9]{8}T[0-9]{12}Z)")
_TIME: Final = "%Y%m%dT%H%M%S%fZ"

log = structlog.get_logger(__name__)


class EndedClaim(NamedTuple):
    """A claim that has ended, and the bytes that were promised to it."""

    namespace: str
    claim: str
    bytes: int


class Retained:
    """The retained directories of a node, below its `root`."""

    def __init__(self, root: Path, clock: Clock = utc) -> None:
        self._root = root / RETAINED
        self._clock = clock

    def bytes(self) -> int:
        """The bytes that were promised to all of them. Raises OSError."""
        with trees.opened(self._root) as place:
            namespaces = os.listdir(place)  # noqa: PTH208 - a descriptor has no path
        return sum(int(found["bytes"]) for name in namespaces for found in self._entries(name))

    def make_folder(self, namespace: str) -> None:
        """Create the folder for the namespace's directories, before they fill the disk. Raises OSError."""
        with trees.opened(self._folder(namespace)):
            pass

    def retain(self, source: int, workspace: str, ended: EndedClaim) -> None:
        """Move the workspace's directory here from the open directory `source`, if it exists. Raises OSError."""
        time = self._time(ended.namespace)
        name = f"{_safe_name(ended.claim)[:_LONGEST]}.{workspace}.{ended.bytes}.{time}"
        with trees.opened(self._folder(ended.namespace)) as folder:
            if trees.move_foreign(source, workspace, folder, name):
                path = self._folder(ended.namespace) / name
                log.info("workspace retained", claim=f"{ended.namespace}/{ended.claim}", path=str(path))

    def _time(self, namespace: str) -> str:
        """The current time, but later than any in the namespace: so the newest are kept also if the clock was set
        back."""
        now = self._clock().astimezone(UTC)
        newest = max((one["time"] for one in self._entries(_safe_name(namespace))), default="")
        if newest >= now.strftime(_TIME):
            with suppress(ValueError, OverflowError):  # not a date: an administrator made up the name
                now = datetime.strptime(newest, _TIME).replace(tzinfo=UTC) + timedelta(microseconds=1)
        return now.strftime(_TIME)

    def trim(self, namespace: str, most: int, trash: int) -> None:
        """Move the oldest of the namespace to the trash, so that at most `most` stay. Raises OSError."""
        found = sorted(self._entries(_safe_name(namespace)), key=lambda one: one["time"])
        with trees.opened(self._folder(namespace)) as folder:
            for one in found[: max(len(found) - most, 0)]:
                trees.move_foreign(folder, one.string, trash, f"{one['id']}.{token_hex(8)}")
                log.info("retained workspace removed to make room", namespace=namespace, name=one.string)

    def _folder(self, namespace: str) -> Path:
        return self._root / _safe_name(namespace)

    def _entries(self, namespace: str) -> Iterator[re.Match[str]]:
        with suppress(FileNotFoundError, NotADirectoryError):
            names = [path.name for path in (self._root / namespace).iterdir()]
            yield from (found for name in names if (found := _NAME.fullmatch(name)))


def _safe_name(name: str) -> str:
    """The name with only characters of API names, so that it can't lead to another folder."""
    return re.sub("[^a-z0-9.-]", "_", name).strip(".") or "_"
