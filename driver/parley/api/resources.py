"""The kinds that Parley reads and writes: their paths in the API, and the decoders of their JSON."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_origin

import msgspec
import orjson
from pydantic import BaseModel

from parley.api import builtin, models, volumes
from parley.api.large_objects import with_little_metadata
from parley.api.names import GROUP, VERSION
from parley.api.opaque import LONG_NUMBER, without_unreadable

T = TypeVar("T")


class Undecodable(ValueError):
    """Raised when an object can't be decoded as its kind. Its message is the decoder's, and its cause is the
    decoder's own exception."""


def _struct_decoder(kind: type[T]) -> Callable[[bytes], T]:
    """A decoder that treats null as absent if it is invalid: an API server writes some empty lists as null (a
    claim's `requests`, the `conditions` of a device that another driver reported)."""
    strict = msgspec.json.Decoder(kind).decode

    def decode(data: bytes) -> T:
        try:
            return strict(data)
        except msgspec.ValidationError:
            return strict(orjson.dumps(_without_nulls(orjson.loads(data))))

    return decode


_OPAQUE = frozenset({"parameters", "data"})
"""Fields with values that only drivers interpret: a null in them may have a meaning."""


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: inner if key in _OPAQUE else _without_nulls(inner)
            for key, inner in value.items()
            if inner is not None
        }
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _direct_decoder(kind: type[T]) -> Callable[[bytes], T]:
    if get_origin(kind) is dict:
        return orjson.loads
    if issubclass(kind, msgspec.Struct):
        return _struct_decoder(kind)
    if issubclass(kind, BaseModel):
        return kind.model_validate_json
    return orjson.loads


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    """A decoder that raises Undecodable for every failure (RecursionError, for example, is no ValueError).

    An object that fails is decoded again without its unreadable opaque parts; one that may have long integers, or
    is large, without these at once. Of a large object not all metadata is read (`large_objects`).
    """
    direct = _direct_decoder(kind)
    slow = isinstance(kind, type) and issubclass(kind, BaseModel)

    def decode(data: bytes) -> T:
        if slow and len(data) > _LARGE:
            return _second_attempt(direct, data, _readable_and_short)
        if slow and LONG_NUMBER.search(data):
            return _second_attempt(direct, data)
        try:
            return direct(data)
        except Exception:
            return _second_attempt(direct, data)

    return decode


def _readable_and_short(data: bytes) -> bytes:
    """The JSON of a large object, whose metadata may be readable only without its unreadable opaque parts."""
    return with_little_metadata(without_unreadable(with_little_metadata(data)))


def _second_attempt(
    direct: Callable[[bytes], T], data: bytes, readable: Callable[[bytes], bytes] = without_unreadable
) -> T:
    try:
        return direct(readable(data))
    except Exception as error:
        raise Undecodable(f"{type(error).__name__}: {error}"[:_LONGEST]) from error


_LARGE = 128 * 1024
"""The bytes from which an object is large. Handles of devices and users' parameters stay far below."""

_LONGEST = 500
"""The most characters of a decoder's message: some repeat the input that they could not read."""


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind of object in the API, decoded as `type`; `decode` raises Undecodable and nothing else.

    `group` is empty for the core group. Two resources are equal if they are the same kind, decoded alike.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]
    decode: Callable[[bytes], T] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decode", _decoder(self.type))

    @property
    def api_version(self) -> str:
        """The value of `apiVersion`: the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_metadata(self) -> bool:
        """Whether it is a kind of objects, which have names."""
        return True

    def untyped(self) -> "Resource[dict[str, Any]]":
        """The same kind, decoded as a plain dictionary with every field that the server sent."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced, dict[str, Any])

    def read_through(self, transform: Callable[[T], T]) -> "Resource[T]":
        """The same kind, with each object transformed as soon as it is decoded, not after the whole list."""
        other, whole = copy(self), self.decode

        def decode(data: bytes) -> T:
            try:
                return transform(whole(data))
            except Undecodable:
                raise
            except Exception as error:
                raise Undecodable(f"{type(error).__name__}: {error}"[:_LONGEST]) from error

        object.__setattr__(other, "decode", decode)
        return other

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The URL path of a collection, an object or a subresource of it.

        For a namespaced kind without `namespace` it is the collection in all namespaces.
        """
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


class _ServerVersion(Resource[dict[str, Any]]):
    """The API server's version at `/version`: it is no object, but is read like one."""

    @property
    def has_metadata(self) -> bool:
        """It has none."""
        return False

    def path(self, *_: object, **__: object) -> str:
        """Always the same."""
        return "/version"


SERVER_VERSION = _ServerVersion("", "v1", "version", "Version", False, dict[str, Any])

PODS = Resource("", "v1", "pods", "Pod", True, builtin.Pod)
NODES = Resource("", "v1", "nodes", "Node", False, builtin.Node)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, builtin.Namespace)
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False, volumes.PersistentVolume)
VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, volumes.PersistentVolumeClaim
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, builtin.ConfigMap)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True, builtin.Event)
SERVICES = Resource("", "v1", "services", "Service", True, builtin.Service)
ENDPOINT_SLICES = Resource(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True, builtin.EndpointSlice
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, builtin.Lease)

BUILTIN_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, builtin.BuiltinClaim)
BUILTIN_TEMPLATES = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, builtin.BuiltinTemplate
)
RESOURCE_SLICES = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, builtin.ResourceSlice
)

DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, builtin.DeviceClass)

CLASSES = Resource(GROUP, VERSION, "resourceclasses", "ResourceClass", False, models.ResourceClass)
CLAIMS = Resource(GROUP, VERSION, "resourceclaims", "ResourceClaim", True, models.ResourceClaim)
TEMPLATES = Resource(
    GROUP, VERSION, "resourceclaimtemplates", "ResourceClaimTemplate", True, models.ResourceClaimTemplate
)
POD_SCHEDULINGS = Resource(GROUP, VERSION, "podschedulings", "PodScheduling", True, models.PodScheduling)
CLAIM_RELEASES = Resource(GROUP, VERSION, "claimreleases", "ClaimRelease", False, models.ClaimRelease)
