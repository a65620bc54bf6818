"""The values that drivers get and return: parameters, requests, allocations, and what is held."""

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
"""Characters in a text among a driver's parameters, where its field names no `max_length` of its own."""


class Parameters(BaseModel):
    """Base of the pydantic models of a driver's parameters, those of claims and those of classes.

    Fields are camelCase in YAML (`per_node` is `perNode`), and an unknown field is an error. What does not fit
    the model is refused before the driver is called, with a message that names the claim or class, field and
    value.

    Any user who may create claims writes a claim's parameters. A text has at most 1,024 characters, unless its
    field sets `max_length`; give each number a limit.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid", str_max_length=MAX_TEXT
    )

    def newest(self) -> "Parameters":
        """The same parameters in the newest version. Override it in the models of older ones: see
        `Driver.parameter_versions`."""
        return self


class NoParameters(Parameters):
    """For a driver without parameters."""


P = TypeVar("P", bound=Parameters)
C = TypeVar("C", bound=Parameters)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodReference:
    """The pod that a request is for. Of a claim that is allocated without a pod (`allocationMode:
    Immediate`) it has only the namespace: name and UID are empty."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ClaimRequest(Generic[P, C]):
    """One pending claim.

    `name` is the pod's entry for it in `spec.resourceClaims`: answers and allocations go by it. `uid` and
    `claim` are the claim's own UID and name: what is held goes by the UID. `class_name` is its class.
    `parameters` and `class_parameters` are of the driver's models. If `generated`, the claim was made from a
    template for this pod alone, and ends with it.
    """

    name: str
    uid: str
    claim: str
    class_name: str
    parameters: P
    class_parameters: C
    generated: bool = False


def _discard(_: str) -> None:
    """Progress of an allocation that nobody waits for."""


@dataclass(frozen=True, slots=True)
class Request(Generic[P, C]):
    """All pending claims of one pod that this driver serves, at most 128. They are evaluated and allocated
    together: two claims of one token each need two tokens.

    `progress` takes, from any thread, a short sentence about how far an allocation is ("attached, formatting").
    Users of an asynchronous or standalone driver read it in the condition `Allocating` of the claims; it is
    written every 5 s at most. `prefer` is "Pack" or "Spread", as the claims' classes say; Parley follows it by
    itself if the driver has no `score`. `seen` describes the pod, for a driver that `sees_pods`; it is None for a
    claim that is allocated without a pod.
    """

    pod: PodReference
    claims: tuple[ClaimRequest[P, C], ...]
    progress: Callable[[str], None] = field(default=_discard, compare=False, repr=False)
    prefer: Prefer = "Spread"
    seen: SeenPod | None = None
    _made: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def once(self, make: "Callable[[Request[P, C]], T]") -> T:
        """What the function makes of the request. It is called once: a driver is asked about the same request at
        every change, as long as the pod waits, and a request may have many claims."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A device by the names of its pool and itself, as in ResourceSlices: `device` is a lower-case DNS
    label, `pool` one or more DNS subdomains with slashes in between. Containers get what the node part
    prepares for it."""

    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class ClassOnNodes(Generic[C]):
    """A class by name, with its parameters, and the names of the nodes where it can be allocated: those of its
    `suitableNodes`."""

    name: str
    parameters: C
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much of a class there is, and how much of that nobody holds. Whole numbers, in what the driver counts
    (devices, tokens): 0 <= `free` <= `total`."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Reserve:
    """Room on a claim's node for the pods that use the claim.

    `amounts` are quantities by resource name (`{"cpu": "2", "memory": "4Gi"}`), at most 16 and without `pods`.
    `pods` is the number of pod slots, 0 to 10,000.

    `hold` says who is kept out of what is unused. "Ledger": the pods about which Parley decides. "Nominated":
    also those about which only the scheduler decides, by reservation pods.

    `yields_to` names at most 16 ResourceClasses, of any driver. A pod of any namespace that has a claim of such
    a class may use what no user of this claim uses, until that pod ends. So take it from the class, which
    administrators write, not from the claim.
    """

    amounts: Mapping[str, str] = field(default_factory=dict)
    pods: int = 0
    hold: Hold = "Ledger"
    yields_to: tuple[str, ...] = ()

    def thousandths(self) -> dict[str, int]:
        """All of it by resource name (`pods` too), in thousandths, without what is zero. Raises ValueError if an
        amount is no quantity."""
        found = {name: thousandths(amount) for name, amount in self.amounts.items()}
        return {name: amount for name, amount in {**found, "pods": 1000 * self.pods}.items() if amount}


@dataclass(frozen=True, slots=True)
class Allocation:
    """What was allocated for one claim.

    `devices` are at most 32. `data` is what JSON can represent, at most 10 KiB and nested at most 64 levels deep:
    it is recorded in the claim, the node part gets it as its handle, and `restore` gets it after a restart, as
    JSON has it (a tuple is a list then), perhaps in a newer version of the driver. Who may read the claim can
    read it, so put no secrets into it.

    `available_on` says on which nodes the claim can be used. An empty tuple: only on the node that it was
    allocated for. Up to 128 names: on these nodes, which have to include that one.
    `NodeLabels({"topology.kubernetes.io/zone": "a"})`: on all nodes with these labels (1 to 16), also on nodes
    that get them later; a node that loses them takes no new users. None: everywhere.

    Leave `reserve` alone: Parley sets it, from `Driver.reserves`.
    """

    devices: tuple[Device, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    available_on: AvailableOn = ()
    reserve: Reserve | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """An allocation that exists in the API, of the claim with this UID. `node` is the one that it was allocated
    for; None if the record does not say: it can be used everywhere, or on several nodes by their labels. Where
    several nodes are named it may be another of these, on which the pod is.

    `devices` and `data` are what `allocate` returned, `data` as JSON has it. It is None if Parley did not make the
    allocation: ordinary DRA took devices of this driver, which are simply in use.
    """

    uid: str
    node: str | None
    devices: tuple[Device, ...]
    data: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Stranded:
    """What becomes of a named claim whose only node takes no pods, once that has lasted for `after_seconds` (0
    to a year, 31,536,000).

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
