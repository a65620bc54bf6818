"""The interface between Parley and the driver of a resource.

Parley decides which nodes to ask about, when to allocate and when to give back; a driver knows what it has
and where. A driver keeps its state in memory: at start Parley tells it what is allocated (`restore`), later
it hears of nothing but its own calls, of foreign allocations (`restore` again) and of the objects it watches.

All methods but `allocate` and `deallocate` are called from one event loop and must return at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from parley.api.resources import Resource
from parley.negotiation.answers import Answer


class Parameters(BaseModel):
    """Base of a driver's parameters: camelCase on the wire; an unknown field is an error, it may be a typo."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class NoParameters(Parameters):
    """For a driver without parameters."""


P = TypeVar("P", bound=Parameters)
C = TypeVar("C", bound=Parameters)


@dataclass(frozen=True, slots=True)
class PodReference:
    """The pod that a request is for."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ClaimRequest(Generic[P, C]):
    """One pending claim: `name` is the pod's entry for it, `uid` and `claim` the object's UID and name."""

    name: str
    uid: str
    claim: str
    class_name: str
    parameters: P
    class_parameters: C


@dataclass(frozen=True, slots=True)
class Request(Generic[P, C]):
    """All pending claims of one pod that this driver serves. They are judged and allocated together."""

    pod: PodReference
    claims: tuple[ClaimRequest[P, C], ...]


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A device by the names of its pool and itself: lower-case DNS names, as in ResourceSlices."""

    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """What was allocated for one claim: at most 32 devices, and `data` for the node part (10 KiB as JSON)."""

    devices: tuple[Device, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """An allocation that exists in the API.

    `data` is what `allocate` gave, or None if it was not made by Parley (ordinary DRA took a device of this
    driver's): then the devices are simply in use.
    """

    uid: str
    node: str | None
    devices: tuple[Device, ...]
    data: Mapping[str, Any] | None


class PermanentError(Exception):
    """Raise from `allocate` when trying again on this node is of no use for this request."""


class Driver(Generic[P, C]):
    """Base class of drivers; `viable`, `allocate` and `deallocate` are the ones to write."""

    name: ClassVar[str]
    """The driver's name as in `ResourceClass.driverName`: a DNS subdomain of at most 63 characters."""

    parameters: type[P]
    class_parameters: type[C]
    watches: ClassVar[tuple[Resource[Any], ...]] = ()
    """Kinds of objects whose changes `observe` gets, from the first list on."""

    def observe(self, old: Any | None, new: Any | None) -> bool:
        """A watched object appeared (old is None), changed, or vanished (new is None).

        Returns whether pods that wait for this driver may now succeed.
        """
        return False

    def restore(self, held: Held) -> None:
        """Count an allocation that exists in the API. Idempotent by `held.uid`."""
        raise NotImplementedError

    def forget(self, uid: str) -> None:
        """A foreign allocation that `restore` told of is gone. Idempotent."""
        raise NotImplementedError

    def viable(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """An answer for each of the request's claims, by `ClaimRequest.name`. Has no side effects."""
        raise NotImplementedError

    def score(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, float]:
        """Preference among viable nodes, 0 (worst) to 1; a node not named counts 0."""
        return {}

    async def allocate(self, request: Request[P, C], node: str) -> Mapping[str, Allocation]:
        """Allocate all claims of the request on the node, or none and raise.

        What is allocated must be out of reach for others from the first await on. Raises PermanentError if
        this node will never do; any other exception is tried again. Never called for a claim that holds something.
        """
        raise NotImplementedError

    async def deallocate(self, uid: str) -> None:
        """Give back what the claim with that UID holds, or abort its allocation. Idempotent."""
        raise NotImplementedError
