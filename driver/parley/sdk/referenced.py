"""The object that `parametersRef` of a class or claim refers to, and the parameters in it.

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
"""The most bytes of the text in a ConfigMap, and of the parameters as JSON."""

_MOST_SPEC_BYTES = 4 * MAX_BYTES
"""The most bytes of a `spec` as the API server sends it: it may escape characters to several bytes."""

KEY = "parameters"
"""The data key of a ConfigMap that has the parameters."""


@dataclass(frozen=True, slots=True)
class ParametersObject:
    """An object that holds parameters. `payer` is the namespace of the claims that refer to it, "" for classes: a
    read counts against that namespace's share of requests."""

    resource: Resource[Any]
    namespace: str
    name: str
    payer: str

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace}/{self.name}".replace(" /", " ")

    @property
    def topic(self) -> Topic:
        """The topic that is woken after the object is read."""
        return ("parameters", self.payer, self.resource.group, self.resource.kind, self.namespace, self.name)


class ParametersUnavailable(Exception):
    """Raised when the content of a referenced object is not known. `transient`: a read is under way."""

    def __init__(self, code: str, message: str, topic: Topic, *, transient: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.topic = topic
        self.transient = transient

    def about(self, whose: str) -> "ParametersUnavailable":
        """The same error, with the claim or class that refers to the object in its message."""
        return ParametersUnavailable(
            self.code, f"parametersRef of {whose}: {self}", self.topic, transient=self.transient
        )


class InvalidParametersObject(Exception):
    """Raised when an object can't hold parameters; the message continues a sentence that begins with the name of
    the claim or class, or of the object."""


class References(Protocol):
    """The parameters in referenced objects, cached in memory."""

    def get(self, wanted: ParametersObject, since: float) -> Mapping[str, Any]:
        """The object's parameters, read at that time (the event loop's clock) or later. Raises
        ParametersUnavailable; then a read is under way, and the object's topic is woken after it."""
        ...

    def reread_later(self, wanted: ParametersObject) -> None:
        """Has the object read again after a pause: the driver does not understand its parameters."""
        ...


class _NoReferences:
    """For a driver that is asked about parameters in claims and classes only."""

    def get(self, wanted: ParametersObject, since: float) -> Mapping[str, Any]:  # noqa: ARG002 - as References has it
        raise ParametersUnavailable(reasons.PARAMETERS_NOT_READ, f"{wanted} is not read here", wanted.topic)

    def reread_later(self, wanted: ParametersObject) -> None:
        """Does nothing: there is nothing to read again."""


NO_REFERENCES: References = _NoReferences()


def object_of(reference: ParametersReference, payer: str, kinds: Sequence[Resource[Any]]) -> ParametersObject:
    """The object that a class, or a claim in the namespace `payer`, refers to. `kinds` are those that the driver
    accepts besides ConfigMaps. Raises InvalidParametersObject if its kind is none of them."""
    accepted = (CONFIG_MAPS, *kinds)
    wanted = (reference.api_group, reference.kind)
    resource = next((kind for kind in accepted if (kind.group, kind.kind) == wanted), None)
    if resource is None:
        names = " or a ".join(_title(kind.group, kind.kind) for kind in accepted)
        raise InvalidParametersObject(f"the driver takes no parameters from a {_title(*wanted)}: name a {names}")
    if not isinstance(reference, ClassParametersReference):
        if not resource.namespaced:
            raise InvalidParametersObject(
                f"{_title(*wanted)} is in no namespace: only a ResourceClass can name one"
            )
        return ParametersObject(resource, payer, reference.name, payer)
    if resource.namespaced != bool(reference.namespace):
        remedy = "name its namespace" if resource.namespaced else "leave namespace out"
        raise InvalidParametersObject(
            f"{_title(*wanted)} is in {'a' if resource.namespaced else 'no'} namespace: {remedy}"
        )
    return ParametersObject(resource, reference.namespace, reference.name, "")


def topic_of(reference: ParametersReference, payer: str) -> Topic:
    """The topic that is woken after a read of the object that a class, or a claim of namespace `payer`, names."""
    namespace = reference.namespace if isinstance(reference, ClassParametersReference) else payer
    return ("parameters", payer, reference.api_group, reference.kind, namespace, reference.name)


def room_topic(payer: str) -> Topic:
    """The topic that is woken when the number of a payer's objects drops below its limit."""
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
    """The resourceVersion in the API server's answer; "" if there is none that can be read."""
    try:
        return _versioned(answer).metadata.resource_version
    except (msgspec.DecodeError, RecursionError):
        return ""


def parameters_in(wanted: ParametersObject, answer: bytes) -> bytes:
    """The parameters in the API server's answer for the object, as compact JSON of a mapping. Raises
    InvalidParametersObject."""
    try:
        value = _in_config_map(answer) if wanted.resource == CONFIG_MAPS else _in_spec(answer)
        packed = orjson.dumps(value)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidParametersObject("can't be read: it is nested too deeply, or is not valid Unicode") from None
    except (TypeError, ValueError):
        raise InvalidParametersObject("it has a number or string that JSON cannot represent") from None
    if len(packed) > MAX_BYTES:
        raise InvalidParametersObject(
            f"has {len(packed)} bytes of parameters, at most {MAX_BYTES} are allowed: shorten them"
        )
    return packed


def _in_config_map(answer: bytes) -> Mapping[str, Any]:
    raw = (_config_map(answer).data or {}).get(KEY)
    if raw is None:
        raise InvalidParametersObject(f"has no data key {KEY!r}: put the parameters there, as YAML or JSON")
    text = msgspec.json.decode(raw, type=str)
    if (size := len(text.encode())) > MAX_BYTES:
        raise InvalidParametersObject(f"data.{KEY} has {size} bytes, at most {MAX_BYTES} are allowed: shorten it")
    try:
        return read_mapping(text)
    except BadDocument as error:
        raise InvalidParametersObject(f"data.{KEY} {error}") from None


def _in_spec(answer: bytes) -> Mapping[str, Any]:
    spec = bytes(_other(answer).spec)
    if len(spec) > _MOST_SPEC_BYTES:
        raise InvalidParametersObject(f"spec has {len(spec)} bytes, at most {MAX_BYTES} are allowed: shorten it")
    if nests_deeper(spec, MAX_DEPTH):
        raise InvalidParametersObject(f"spec nests deeper than {MAX_DEPTH} levels: make it flatter")
    value = {} if spec == b"null" else orjson.loads(spec)
    if not isinstance(value, dict):
        raise InvalidParametersObject("spec is not an object")
    return value
