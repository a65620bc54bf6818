"""The values that drivers get and return: parameters, requests, allocations, capacities, reserved room."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from parley.api.models import Hold
from parley.api.quantity import thousandths
from parley.negotiation.availability import AvailableOn
from parley.negotiation.preference import Prefer
from parley.sdk.sight import SeenPod

MAX_TEXT = 1024
"""The most characters of a text in a driver's parameters, unless its field sets a `max_length`."""


class Parameters(BaseModel):
    """Base of the pydantic models of a driver's parameters, those of claims and those of classes.

    Fields are camelCase in YAML (`per_node` is `perNode`), and an unknown field is an error. Parameters that do
    not fit the model are refused before the driver is called, with a message that names the claim or class, field
    and value.

    A claim's parameters are written by any user who may create claims. A text has at most 1,024 characters, unless
    its field sets `max_length`; give each number a limit.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid", str_max_length=MAX_TEXT
    )

    def newest(self) -> "Parameters":
        """The same parameters in the newest version. Override it in the models of older ones: see
        `Driver.parameter_versions`."""
        return self


class NoParameters(Parameters):
    """The model of a driver without parameters."""


P = TypeVar("P", bound=Parameters)
C = TypeVar("C", bound=Parameters)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodReference:
    """The pod that a request is for. For a claim that is allocated without a pod (`allocationMode: Immediate`),
    only the namespace is set: name and UID are empty."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ClaimRequest(Generic[P, C]):
    """One pending claim.

    `name` is the claim's entry in the pod's `spec.resourceClaims`: answers and allocations are keyed by it. `uid`
    and `claim` are the claim's own UID and name: allocations that exist are keyed by the UID. `class_name` is its
    class. `parameters` and `class_parameters` are instances of the driver's models. If `generated`, the claim was
    made from a template for this pod alone, and ends with it.
    """

    name: str
    uid: str
    claim: str
    class_name: str
    parameters: P
    class_parameters: C
    generated: bool = False


def _discard(_: str) -> None:
    """Discards the progress of an allocation that is reported to no user."""


@dataclass(frozen=True, slots=True)
class Request(Generic[P, C]):
    """All pending claims of one pod that this driver serves, at most 128. They are evaluated and allocated
    together: two claims of one token each need two tokens.

    `progress` takes, from any thread, a short sentence about how far an allocation is ("attached, formatting").
    Users of an asynchronous or standalone driver read it in the condition `Allocating` of the claims; it is
    written every 5 s at most. `prefer` is "Pack" or "Spread", from the claims' classes; Parley applies it itself
    if the driver has no `score`. `seen` describes the pod, for a driver that `sees_pods`; it is None for a claim
    that is allocated without a pod.
    """

    pod: PodReference
    claims: tuple[ClaimRequest[P, C], ...]
    progress: Callable[[str], None] = field(default=_discard, compare=False, repr=False)
    prefer: Prefer = "Spread"
    seen: SeenPod | None = None
    _computed: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def once(self, make: "Callable[[Request[P, C]], T]") -> T:
        """The function's result for this request, cached: a driver is asked about the same request at every
        change, as long as the pod waits, and a request may have many claims."""
        if make not in self._computed:
            self._computed[make] = make(self)
        result: T = self._computed[make]
        return result


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A device by its pool's name and its own, as in ResourceSlices: `device` is a lower-case DNS label, `pool`
    one or more DNS subdomains with slashes in between. Containers get what the node part prepares for the
    device."""

    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class ClassOnNodes(Generic[C]):
    """A class by its name, its parameters, and the names of the nodes where its claims can be allocated: those
    that match its `suitableNodes`."""

    name: str
    parameters: C
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much of a class there is, and how much of that is free. Whole numbers, in the driver's own unit
    (devices, tokens): 0 <= `free` <= `total`."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Reserve:
    """Room to reserve on a claim's node for the pods that use the claim.

    `amounts` are quantities by resource name (`{"cpu": "2", "memory": "4Gi"}`), at most 16 and without `pods`.
    `pods` is the number of pod slots, 0 to 10,000.

    `hold` says which pods are kept out of the unused part. "Ledger": the pods whose nodes Parley selects.
    "Nominated": also the pods that only the scheduler places, by means of reservation pods.

    `yields_to` names at most 16 ResourceClasses, of any driver. A pod of any namespace that has a claim of such
    a class may use the room that no user of this claim uses, until that pod ends. So take `yields_to` from the
    class, which administrators write, not from the claim.
    """

    amounts: Mapping[str, str] = field(default_factory=dict)
    pods: int = 0
    hold: Hold = "Ledger"
    yields_to: tuple[str, ...] = ()

    def thousandths(self) -> dict[str, int]:
        """All amounts by resource name (`pods` too), in thousandths, without zeros. Raises ValueError if an amount
        is no quantity."""
        amounts = {name: thousandths(amount) for name, amount in self.amounts.items()}
        return {name: amount for name, amount in {**amounts, "pods": 1000 * self.pods}.items() if amount}


@dataclass(frozen=True, slots=True)
class Allocation:
    """A driver's allocation for one claim.

    `devices` are at most 32. `data` must be representable in JSON, at most 10 KiB and nested at most 64 levels
    deep, with no integer above 2^63 - 1: it is recorded in the claim, the node part gets it as its handle, and
    `restore` gets it after a restart, decoded from JSON (a tuple is then a list, and a field that is None is left
    out), perhaps in a newer version of the driver. Everybody who may read the claim can read it, so put no secrets
    into it.

    `available_on` says on which nodes the claim can be used. An empty tuple: only on the node that it was
    allocated for. Up to 128 names: on these nodes, which have to include that one.
    `NodeLabels({"topology.kubernetes.io/zone": "a"})`: on all nodes with these labels (1 to 16), also on nodes
    that get them later; a node that loses them takes no new users. None: on every node.

    Do not set `reserve`: Parley sets it, from `Driver.reserves`.
    """

    devices: tuple[Device, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    available_on: AvailableOn = ()
    reserve: Reserve | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """An allocation that exists in the API, of the claim with this UID. `node` is the node that it was allocated
    for; None if the record does not say: it can be used on every node, or on several by their labels. If the
    record names several nodes, `node` may be another of these, the one on which the pod is.

    `devices` and `data` are what `allocate` returned, `data` decoded from JSON. `data` is None if Parley did not
    make the allocation: ordinary DRA allocated devices of this driver, which are simply in use.
    """

    uid: str
    node: str | None
    devices: tuple[Device, ...]
    data: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Stranded:
    """How to treat a named claim whose only node takes no pods, once that has lasted for `after_seconds` (0 to a
    year, 31,536,000).

    Wait: pods wait for the node. Fail: no further pod may use the claim, even if the node comes back. Recreate:
    if the node was deleted or is out of service, and no pod uses the claim, it is deallocated, and allocated
    again for the next pod. In all other cases pods wait.
    """

    way: Literal["Wait", "Fail", "Recreate"] = "Wait"
    after_seconds: float = 0.0


class PermanentError(Exception):
    """Raise it in `allocate` if this request can never be allocated on this node. Users read its message.

    The node is excluded for this pod until the class changes, or the pod fails: see `onPermanentError` of the
    class.
    """
