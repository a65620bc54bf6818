"""Built-in claims as Parley's controller writes them, for tests of drivers and of the plugin."""

from collections.abc import Mapping, Sequence
from typing import Any

from parley.api.builtin import BuiltinClaim
from parley.api.names import DEVICE_CLASS, EXCLUSIVE_REQUEST
from parley.api.resources import BUILTIN_CLAIMS
from parley.api.selectors import node_selector
from parley.kube.client import Client
from parley_kubelet.configuration import DEFAULT_DRIVER
from parley_kubelet.names import PLACEHOLDER


async def create_claim(
    client: Client, name: str, status: Mapping[str, Any] | None = None, namespace: str = "team"
) -> BuiltinClaim:
    """A built-in claim with that status, which the server checks as it would the controller's."""
    claim = await client.create(BUILTIN_CLAIMS, claim_body(name), namespace)
    if status is None:
        return claim
    return await client.patch(BUILTIN_CLAIMS, name, {"status": status}, namespace, subresource="status")


def claim_body(name: str) -> dict[str, Any]:
    """A built-in claim as Parley's mirror of a claim."""
    request = {"name": EXCLUSIVE_REQUEST, "exactly": {"deviceClassName": DEVICE_CLASS}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


_RESERVED = [{"resource": "pods", "name": "pod", "uid": "uid-of-pod"}]


def allocated_status(
    node: str,
    devices: Sequence[str],
    *,
    shared: bool = False,
    driver: str = DEFAULT_DRIVER,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The claim's `status` after the controller allocated at once: each result names a device, the handle is that
    of the device driver, or `data`."""
    handle = _handle(node, devices, shared=shared) if data is None else dict(data)
    results = [_result(driver, node, device) for device in devices] or [_result(driver, *PLACEHOLDER)]
    config = {"source": "FromClaim", "requests": [EXCLUSIVE_REQUEST]}
    return {
        "allocation": {
            "devices": {
                "results": results,
                "config": [{**config, "opaque": {"driver": driver, "parameters": handle}}],
            },
            "nodeSelector": node_selector([node]),
        },
        "reservedFor": _RESERVED,
    }


def offered_status(
    node: str, devices: Sequence[str], *, shared: bool = False, driver: str = DEFAULT_DRIVER
) -> dict[str, Any]:
    """The claim's `status` after nodes were offered and devices found later; without `devices` not yet."""
    result = {**_result(driver, *PLACEHOLDER), "bindingConditions": ["parley.dev/allocated"]}
    status: dict[str, Any] = {
        "allocation": {
            "devices": {"results": [{**result, "bindingFailureConditions": ["parley.dev/declined"]}]},
            "nodeSelector": node_selector(["another", node]),
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "reservedFor": _RESERVED,
    }
    if devices:
        pool, device = PLACEHOLDER
        data = _handle(node, devices, shared=shared)
        status["devices"] = [{"driver": driver, "pool": pool, "device": device, "data": data}]
    return status


def _result(driver: str, pool: str, device: str) -> dict[str, Any]:
    return {"request": EXCLUSIVE_REQUEST, "driver": driver, "pool": pool, "device": device}


def _handle(node: str, devices: Sequence[str], *, shared: bool) -> dict[str, Any]:
    return {"devices": [{"pool": node, "device": device} for device in devices], "shared": shared}
