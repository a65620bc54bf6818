"""CDI specifications: the edits that the container runtime applies to containers that use a claim.

One file per claim. Its first CDI device stands for the whole claim and has all edits; each device of the claim has
one more with only its variable: by its id the kubelet attributes health to a device. The file can be made from the
checkpoint alone and is removed with the claim. The folder is usually in memory and shared with other vendors:
files are recognised by a prefix, and written again after a restart of the machine (`claims.restoring`).

Source of the format: Container Device Interface specification, version 0.6.0, which containerd 1.7 reads too.
"""

from collections import Counter
from typing import Any, Final

import orjson

from parley_kubelet.edits import Edits
from parley_kubelet.names import device_variable
from parley_kubelet.state.checkpoint import CheckpointEntry, HeldDevice
from parley_kubelet.state.durable import Folder

VERSION: Final = "0.6.0"
CLASS: Final = "claim"

_SEPARATOR: Final = "-claim-"
_ENDING: Final = ".json"


def device_ids(driver: str, entry: CheckpointEntry, device: HeldDevice | None = None) -> tuple[str, ...]:
    """The CDI device ids that the kubelet passes to the container runtime for one device, or for the claim alone.

    The first is the device's own; container runtimes apply the claim's once.
    """
    names = [] if device is None else [_names(entry)[device]]
    return tuple(f"{driver}/{CLASS}={name}" for name in (*names, entry.uid)) if _has_edits(entry) else ()


def specification(driver: str, entry: CheckpointEntry) -> dict[str, Any] | None:
    """The CDI specification of one claim; None if it has no edits."""
    if not _has_edits(entry):
        return None
    variables = {device: {device_variable(device.name): device.name} for device in entry.devices}
    device_env = {name: value for variable in variables.values() for name, value in variable.items()}
    edits = entry.edits
    whole = edits.model_copy(update={"env": {**_missing(device_env, edits), **edits.env}})
    devices = [{"name": entry.uid, "containerEdits": whole.cdi()}]
    for device, name in _names(entry).items():
        env = {variable: whole.env[variable] for variable in variables[device]}
        devices.append({"name": name, "containerEdits": Edits(env=env).cdi()})
    return {"cdiVersion": VERSION, "kind": f"{driver}/{CLASS}", "devices": devices}


def _has_edits(entry: CheckpointEntry) -> bool:
    """Whether the claim has edits: CDI does not allow devices without."""
    return bool(entry.devices or entry.edits.cdi())


def _missing(device_env: dict[str, str], edits: Edits) -> dict[str, str]:
    return {name: value for name, value in device_env.items() if name not in edits.env}


def _names(entry: CheckpointEntry) -> dict[HeldDevice, str]:
    """The name of each device's own CDI device: letters, digits, '.', '-' and '_', as CDI requires."""
    count = Counter(device.name for device in entry.devices)
    return {
        device: f"{entry.uid}_{device.name if count[device.name] == 1 else _with_pool(device)}"
        for device in entry.devices
    }


def _with_pool(device: HeldDevice) -> str:
    return f"{device.pool.replace('/', '_')}_{device.name}"


class Specifications:
    """The files of one driver in the folder that the container runtime reads."""

    def __init__(self, folder: Folder, driver: str) -> None:
        self._folder = folder
        self.driver = driver
        self._prefix = f"parley.dev-{driver}{_SEPARATOR}"

    def write(self, entry: CheckpointEntry) -> None:
        """Write the claim's file, unless it is up to date. Raises OSError."""
        wanted = specification(self.driver, entry)
        if wanted is None:
            self.remove(entry.uid)
            return
        content = orjson.dumps(wanted, option=orjson.OPT_INDENT_2)
        if self._folder.read(self._file(entry.uid)) != content:
            # For root alone: variables of containers may be secrets. Not flushed: files that a power cut removes
            # are written again at startup
            self._folder.write(self._file(entry.uid), content, flush=False)

    def remove(self, uid: str) -> None:
        """Remove the claim's file; no error if it does not exist. Raises OSError."""
        self._folder.remove(self._file(uid))

    def claims(self) -> frozenset[str]:
        """The UIDs of the claims that have a file. Raises OSError."""
        names = self._folder.names(self._prefix)
        found = (name.removeprefix(self._prefix).removesuffix(_ENDING) for name in names)
        return frozenset(uid for uid in found if _SEPARATOR not in uid)  # else a driver's whose name contains it

    def sweep(self) -> None:
        """Remove temporary files that a crash in the middle of a write left. Raises OSError."""
        self._folder.sweep()

    def _file(self, uid: str) -> str:
        return f"{self._prefix}{uid}{_ENDING}"
