"""A claim's request in a mirror: the class, and the parameters for its driver. Composes and reads it. Pure.

A mirror has one request, which names a DeviceClass that does not exist, so that only Parley allocates it. Class
and parameters are in its opaque configuration, so a generated claim needs no other object to be read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from parley.api.builtin import BuiltinClaim, DeviceConfig
from parley.api.models import ClaimSpec, ParametersReference
from parley.api.names import DEVICE_CLASS, EXCLUSIVE_REQUEST, GROUP, SHAREABLE_REQUEST
from parley.api.opaque import escaped, read, why_unreadable

MAX_PARAMETERS_BYTES = 10_000
"""Opaque parameters may have 10 KiB as JSON; the rest is for the fields that Parley adds."""


@dataclass(frozen=True, slots=True)
class ClassRequest:
    """A mirror's request: class and parameters, or a `reference` to the object that has the parameters."""

    class_name: str
    parameters: Mapping[str, Any] | None
    reference: ParametersReference | None = None


def parameters_too_large(spec: ClaimSpec) -> int:
    """The parameters' size in bytes if they don't fit into a mirror, otherwise 0."""
    size = len(escaped(orjson.dumps(spec.parameters)))
    return size if size > MAX_PARAMETERS_BYTES else 0


def claim_spec(spec: ClaimSpec, *, shareable: bool) -> dict[str, Any]:
    """The `spec` of a mirror."""
    parameters: dict[str, Any] = {"resourceClassName": spec.resource_class_name}
    if spec.parameters is not None:
        parameters["parameters"] = dict(spec.parameters)
    if spec.parameters_ref is not None:
        parameters["parametersRef"] = spec.parameters_ref.wire()
    request = SHAREABLE_REQUEST if shareable else EXCLUSIVE_REQUEST
    return {
        "devices": {
            "requests": [{"name": request, "exactly": {"deviceClassName": DEVICE_CLASS}}],
            "config": [{"opaque": {"driver": GROUP, "parameters": parameters}}],
        }
    }


def class_request(claim: BuiltinClaim) -> ClassRequest | None:
    """The mirror's request; None if Parley did not write its configuration."""
    parameters = opaque_object(claim.spec.devices.config, GROUP) or {}
    name, inner = parameters.get("resourceClassName"), parameters.get("parameters")
    named = parameters.get("parametersRef")
    if not isinstance(name, str) or not isinstance(inner, dict | None):
        return None
    try:
        reference = ParametersReference.model_validate(named) if named is not None else None
    except ValidationError:
        return None
    return ClassRequest(name, inner, reference)


def of_spec(spec: ClaimSpec) -> ClassRequest:
    """A Parley claim's request."""
    return ClassRequest(spec.resource_class_name, spec.parameters, spec.parameters_ref)


def unreadable(claim: BuiltinClaim) -> str:
    """Why the mirror's request can't be read; "" if it can."""
    return why_unreadable(opaque_object(claim.spec.devices.config, GROUP))


def opaque_object(configs: Iterable[DeviceConfig], driver: str) -> dict[str, Any] | None:
    """The opaque configuration of that driver, if it is an object; UNREADABLE says why it can't be read."""
    for config in configs:
        if config.opaque is not None and config.opaque.driver == driver:
            parameters = read(config.opaque.parameters)
            if isinstance(parameters, dict):
                return parameters
    return None
