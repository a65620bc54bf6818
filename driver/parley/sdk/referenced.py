"""Objects that hold parameters, as `parametersRef` of a class or claim names them: which it is, and what it has.

A ConfigMap has them under its data key `parameters`, as a YAML or JSON mapping; an object of any other kind in its
`spec`. Users wrote both, so both are bounded before they are read. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import orjson

from parley.api import reasons
from parley.api.models import ClassParametersReference, ParametersReference
from parley.api.opaque import MAX_DEPTH, NOTHING
from parley.api.resources import CONFIG_MAPS, Resource
from parley.api.scanning import nests_deeper
from parley.negotiation.waiting import Topic
from parley.sdk.documents import BadDocument, read_mapping

MAX_BYTES = 10 * 1024
"""Of the text in a ConfigMap, and of the parameters as JSON."""

_MOST_SPEC_BYTES = 4 * MAX_BYTES
"""As the API server sends it: a character may take several bytes more than it needs."""

KEY = "parameters"
"""Data key of a ConfigMap."""


@dataclass(frozen=True, slots=True)
class ParametersObject:
    """An object that holds parameters. `payer` is the namespace of the claims that name it, "" for classes: whose
    share of requests it takes to read it."""

    resource: Resource[Any]
    namespace: str
    name: str
    payer: str

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace}/{self.name}".replace(" /", " ")

    @property
    def topic(self) -> Topic:
        """What wakes those who wait until it is read."""
        return ("parameters", self.payer, self.resource.group, self.resource.kind, self.namespace, self.name)


class NotRead(Exception):
    """Raised when what an object holds is not known. `transient`: it is just being read."""

    def __init__(self, code: str, message: str, topic: Topic, *, transient: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.topic = topic
        self.transient = transient

    def about(self, whose: str) -> "NotRead":
        """The same, for the claim or class that names the object."""
        return NotRead(self.code, f"parametersRef of {whose}: {self}", self.topic, transient=self.transient)


class Unfit(Exception):
    """Raised when an object can't be what parameters come from; the message goes on after the name of claim or
    class, or of the object."""


class References(Protocol):
    """What such objects hold, from memory."""

    def get(self, wanted: ParametersObject, since: float) -> Mapping[str, Any]:
        """What was read at that time (the event loop's clock) or later. Raises NotRead; then it is being read, and
        its topic is woken afterwards."""
        ...

    def doubt(self, wanted: ParametersObject) -> None:
        """The driver does not understand what the object holds: read it again after a pause."""
        ...


class _Nothing:
    """For a driver that is asked about parameters in claims and classes only."""

    def get(self, wanted: ParametersObject, since: float) -> Mapping[str, Any]:  # noqa: ARG002 - as References has it
        raise NotRead(reasons.PARAMETERS_NOT_READ, f"{wanted} is not read here", wanted.topic)

    def doubt(self, wanted: ParametersObject) -> None:
        """It was not read."""


NOTHING_READ: References = _Nothing()


def object_of(reference: ParametersReference, payer: str, kinds: Sequence[Resource[Any]]) -> ParametersObject:
    """The object that a class, or a claim of namespace `payer`, names. `kinds` are those that the driver accepts
    besides ConfigMaps. Raises Unfit if it is none of them."""
    accepted = (CONFIG_MAPS, *kinds)
    asked = (reference.api_group, reference.kind)
    resource = next((one for one in accepted if (one.group, one.kind) == asked), None)
    if resource is None:
        names = " or a ".join(_title(one.group, one.kind) for one in accepted)
        raise Unfit(f"the driver takes no parameters from a {_title(*asked)}: name a {names}")
    if not isinstance(reference, ClassParametersReference):
        if not resource.namespaced:
            raise Unfit(f"{_title(*asked)} is in no namespace: only a ResourceClass can name one")
        return ParametersObject(resource, payer, reference.name, payer)
    if resource.namespaced != bool(reference.namespace):
        remedy = "name its namespace" if resource.namespaced else "leave namespace out"
        raise Unfit(f"{_title(*asked)} is in {'a' if resource.namespaced else 'no'} namespace: {remedy}")
    return ParametersObject(resource, reference.namespace, reference.name, "")


def topic_of(reference: ParametersReference, payer: str) -> Topic:
    """What is woken when the object that a class, or a claim of namespace `payer`, names was read."""
    namespace = reference.namespace if isinstance(reference, ClassParametersReference) else payer
    return ("parameters", payer, reference.api_group, reference.kind, namespace, reference.name)


def room_topic(payer: str) -> Topic:
    """What is woken when one more of a payer's objects can be read than before."""
    return ("parameters", payer)


def _title(group: str, kind: str) -> str:
    return f"{kind} of {group}" if group else kind


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, msgspec.Raw] | None = None


class _Other(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = NOTHING


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_config_map, _other = msgspec.json.Decoder(_ConfigMap).decode, msgspec.json.Decoder(_Other).decode
_versioned = msgspec.json.Decoder(_Versioned).decode


def version_in(answer: bytes) -> str:
    """The resourceVersion of the object, as the API server sent it; "" if it has none that can be read."""
    try:
        return _versioned(answer).metadata.resource_version
    except (msgspec.DecodeError, RecursionError):
        return ""


def parameters_in(wanted: ParametersObject, answer: bytes) -> bytes:
    """The parameters in the object, as the API server sent it: compact JSON of a mapping. Raises Unfit."""
    try:
        value = _in_config_map(answer) if wanted.resource == CONFIG_MAPS else _in_spec(answer)
        packed = orjson.dumps(value)
    except (msgspec.DecodeError, RecursionError):
        raise Unfit("can't be read: it is nested too deeply, or is not valid Unicode") from None
    except (TypeError, ValueError):
        raise Unfit("it has a number or string that JSON cannot represent") from None
    if len(packed) > MAX_BYTES:
        raise Unfit(f"has {len(packed)} bytes of parameters, at most {MAX_BYTES} are allowed: shorten them")
    return packed


def _in_config_map(answer: bytes) -> Mapping[str, Any]:
    raw = (_config_map(answer).data or {}).get(KEY)
    if raw is None:
        raise Unfit(f"has no data key {KEY!r}: put the parameters there, as YAML or JSON")
    text = msgspec.json.decode(raw, type=str)
    if (size := len(text.encode())) > MAX_BYTES:
        raise Unfit(f"data.{KEY} has {size} bytes, at most {MAX_BYTES} are allowed: shorten it")
    try:
        return read_mapping(text)
    except BadDocument as error:
        raise Unfit(f"data.{KEY} {error}") from None


def _in_spec(answer: bytes) -> Mapping[str, Any]:
    spec = bytes(_other(answer).spec)
    if len(spec) > _MOST_SPEC_BYTES:
        raise Unfit(f"spec has {len(spec)} bytes, at most {MAX_BYTES} are allowed: shorten it")
    if nests_deeper(spec, MAX_DEPTH):
        raise Unfit(f"spec nests deeper than {MAX_DEPTH} levels: make it flatter")
    value = {} if spec == b"null" else orjson.loads(spec)
    if not isinstance(value, dict):
        raise Unfit("spec is not an object")
    return value
