"""What the container runtime adds to a container that uses a claim, as a CDI specification.

One file per claim, with one CDI device that stands for all devices of the claim, so that the file can be made
from the checkpoint alone and removed with the claim. The folder is usually on a memory disk and shared with
other vendors: files are told apart by a prefix, and written again after a restart of the machine.

Source of the format: Container Device Interface specification, version 0.6.0, which containerd 1.7 reads too.
"""

from collections.abc import Iterable
from typing import Any, Final

import orjson

from parley_kubelet.checkpoint import PreparedClaim
from parley_kubelet.devices import NodeDevice
from parley_kubelet.durable import Folder

VERSION: Final = "0.6.0"
CLASS: Final = "claim"
VARIABLE: Final = "PARLEY_DEVICE_"
"""Each device has a variable of its own: with one list for all, the last of a container's claims would win."""


def device_id(driver: str, uid: str) -> str:
    """The name by which the kubelet passes the claim's CDI device to the container runtime."""
    return f"{driver}/{CLASS}={uid}"


def specification(driver: str, claim: PreparedClaim) -> dict[str, Any]:
    """The CDI specification of one claim."""
    return {
        "cdiVersion": VERSION,
        "kind": f"{driver}/{CLASS}",
        "devices": [{"name": claim.uid, "containerEdits": _edits(claim.devices)}],
    }


def _edits(devices: tuple[NodeDevice, ...]) -> dict[str, Any]:
    edits: dict[str, Any] = {"env": [f"{name}={value}" for name, value in _environment(devices).items()]}
    if nodes := dict.fromkeys(node for device in devices for node in device.device_nodes):
        edits["deviceNodes"] = [{"path": node} for node in nodes]
    return edits


def _environment(devices: tuple[NodeDevice, ...]) -> dict[str, str]:
    """A variable that several devices set differently lists their values, separated by commas."""
    values: dict[str, dict[str, None]] = {}
    for device in devices:
        own = VARIABLE + device.name.upper().replace("-", "_")
        for name, value in ((own, device.model), *device.env.items()):
            values.setdefault(name, {})[value] = None
    return {name: ",".join(distinct) for name, distinct in values.items()}


class Specifications:
    """The files of one driver in the folder that the container runtime reads."""

    def __init__(self, folder: Folder, driver: str) -> None:
        self._folder = folder
        self._driver = driver
        self._prefix = f"parley.dev-{driver}-claim-"

    def write(self, claim: PreparedClaim) -> None:
        """Make the claim's file what it should be; no write if it is. Raises OSError."""
        content = orjson.dumps(specification(self._driver, claim), option=orjson.OPT_INDENT_2)
        if self._folder.read(self._file(claim.uid)) != content:
            self._folder.write(self._file(claim.uid), content, mode=0o644)

    def remove(self, uid: str) -> None:
        """Remove the claim's file; it is no error if it is gone. Raises OSError."""
        self._folder.remove(self._file(uid))

    def restore(self, claims: Iterable[PreparedClaim]) -> None:
        """Write what is missing, and remove what a crash or a lost unprepare left. Raises OSError."""
        self._folder.sweep()
        wanted = set()
        for claim in claims:
            self.write(claim)
            wanted.add(self._file(claim.uid))
        for name in self._folder.names(self._prefix):
            if name not in wanted:
                self._folder.remove(name)

    def _file(self, uid: str) -> str:
        return f"{self._prefix}{uid}.json"
