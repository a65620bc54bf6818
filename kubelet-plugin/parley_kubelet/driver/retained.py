"""Directories that stay on the node when their claims have ended, for an administrator to fetch or remove.

    ROOT/retained/NAMESPACE/CLAIM.ID.BYTES.TIME

ID is the workspace's, BYTES what was promised to it, TIME when it was put by (UTC). Nothing here is given to a
claim again: a claim's directory is in `data` alone. Of a namespace as many stay as the class of the last claim
says; the oldest make room. What an administrator puts here by another name is left alone.
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
"""Characters of a claim's name in that of its directory, which has 255 at most."""

_NAME: Final = re.compile(r".+\.(?P<id>[0-9a-zA-Z-]+)\.(?P<bytes>[0-9]{1,19})\.(?P<time>[0-9]{8}T[0-9]{12}Z)")
_TIME: Final = "%Y%m%dT%H%M%S%fZ"

log = structlog.get_logger(__name__)


class Ended(NamedTuple):
    """A claim that has ended, and how many bytes were promised to it."""

    namespace: str
    claim: str
    bytes: int


class Retained:
    """Those of a node, in its `root`."""

    def __init__(self, root: Path, clock: Clock = utc) -> None:
        self._place = root / RETAINED
        self._clock = clock

    def bytes(self) -> int:
        """What was promised to them. Raises OSError."""
        with trees.opened(self._place) as place:
            namespaces = os.listdir(place)  # noqa: PTH208 - a descriptor has no path
        return sum(int(found["bytes"]) for name in namespaces for found in self._of(name))

    def make_place(self, namespace: str) -> None:
        """Where directories of the namespace are put by: once they fill the disk nothing can be made. Raises
        OSError."""
        with trees.opened(self._folder(namespace)):
            pass

    def put_by(self, source: int, workspace: str, ended: Ended) -> None:
        """Take the directory of that name out of `source`, if it is there. Raises OSError."""
        time = self._time(ended.namespace)
        name = f"{_plain(ended.claim)[:_LONGEST]}.{workspace}.{ended.bytes}.{time}"
        with trees.opened(self._folder(ended.namespace)) as folder:
            if trees.move_away(source, workspace, folder, name):
                path = self._folder(ended.namespace) / name
                log.info("workspace retained", claim=f"{ended.namespace}/{ended.claim}", path=str(path))

    def _time(self, namespace: str) -> str:
        """Now, but later than that of any in the namespace: the newest stay also where the clock was put back."""
        now = self._clock().astimezone(UTC)
        newest = max((one["time"] for one in self._of(_plain(namespace))), default="")
        if newest >= now.strftime(_TIME):
            with suppress(ValueError, OverflowError):  # somebody made that name who knows no dates
                now = datetime.strptime(newest, _TIME).replace(tzinfo=UTC) + timedelta(microseconds=1)
        return now.strftime(_TIME)

    def trim(self, namespace: str, most: int, trash: int) -> None:
        """Move the oldest of the namespace to the trash, if there are more. Raises OSError."""
        found = sorted(self._of(_plain(namespace)), key=lambda one: one["time"])
        with trees.opened(self._folder(namespace)) as folder:
            for one in found[: max(len(found) - most, 0)]:
                trees.move_away(folder, one.string, trash, f"{one['id']}.{token_hex(8)}")
                log.info("retained workspace removed to make room", namespace=namespace, name=one.string)

    def _folder(self, namespace: str) -> Path:
        return self._place / _plain(namespace)

    def _of(self, namespace: str) -> Iterator[re.Match[str]]:
        with suppress(FileNotFoundError, NotADirectoryError):
            names = [path.name for path in (self._place / namespace).iterdir()]
            yield from (found for name in names if (found := _NAME.fullmatch(name)))


def _plain(name: str) -> str:
    """As a name of the API is, whatever it is: it leads nowhere else."""
    return re.sub("[^a-z0-9.-]", "_", name).strip(".") or "_"
