"""Converts checkpoint entries of earlier versions of the plugin. Writes nothing.

Version 1 knew devices of the node only. An entry was a prepared claim: its results, whether it has shares, and
its devices with all that a container gets of them. A result could be a placeholder for devices found later; the
pool was always the node.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from parley.api.meta import Model
from parley_kubelet.driver.devices import NodeDevice, edits_of
from parley_kubelet.names import PLACEHOLDER


class _Result(Model):
    request: str
    pool: str
    device: str


class _Device(Model):
    name: str
    model: str
    memory: str | None = None
    shares: Annotated[int, Field(ge=1)] = 1
    device_nodes: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


class _PreparedClaim(Model):
    uid: str
    namespace: str
    name: str
    shared: bool
    results: tuple[_Result, ...]
    devices: tuple[_Device, ...]


def from_version_1(claim: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Converts an entry of version 1 to version 2. Raises ValidationError if it is not one of version 1."""
    old = _PreparedClaim.model_validate(claim)
    devices = [{"pool": node, "device": device.name} for device in old.devices]
    return {
        "uid": old.uid,
        "namespace": old.namespace,
        "name": old.name,
        "phase": "prepared",
        "boot": "",
        "results": [result.model_dump() for result in _results(old, node)],
        "devices": [{"pool": node, "name": device.name} for device in old.devices],
        "handle": {"devices": devices, "shared": old.shared},
        "edits": edits_of([NodeDevice(**device.model_dump()) for device in old.devices]).model_dump(
            mode="json", by_alias=True
        ),
        "state": {"devices": [device.model_dump(mode="json", by_alias=True) for device in old.devices]},
    }


def _results(old: _PreparedClaim, node: str) -> list[_Result]:
    """The entry's results, with the devices in place of a placeholder. The kubelet keeps the response that it got;
    if it prepares the claim again, it gets the devices."""
    if all((result.pool, result.device) != PLACEHOLDER for result in old.results):
        return list(old.results)
    request = old.results[0].request
    return [_Result(request=request, pool=node, device=device.name) for device in old.devices]
