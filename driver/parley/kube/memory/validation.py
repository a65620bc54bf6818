"""Validation of an object: its metadata, and the kind's schema and rules. All faults are reported together."""

from typing import Any

import msgspec

from parley.api import builtin
from parley.api.resources import Resource
from parley.kube.memory import naming
from parley.kube.memory.errors import Fault, bad_request, invalid
from parley.kube.memory.kinds import Json, Traits

_UNCHECKED = Fault(
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def check(resource: Resource[Any], traits: Traits, old: Json | None, new: Json) -> None:
    """Raise Invalid if the object violates a rule of its kind, BadRequest if its metadata has wrong types."""
    _check_types(new["metadata"])
    wrong: list[Fault] = []
    if traits.schema is not None:
        traits.schema(new, None, wrong)
    named = naming.faults(old["metadata"] if old else None, new["metadata"], custom=traits.custom)
    faults = [*named, *wrong]
    if any(fault.blocking for fault in wrong):
        faults.append(_UNCHECKED)
    else:
        faults += [fault for rule in traits.rules for fault in rule(old, new)]
    if faults:
        raise invalid(resource, new["metadata"]["name"], faults)


def _check_types(meta: Json) -> None:
    try:
        msgspec.convert(meta, builtin.ObjectMeta)
    except msgspec.ValidationError as error:
        raise bad_request(f"the object provided is unrecognized (metadata: {error})") from None
