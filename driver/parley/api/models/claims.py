"""ResourceClaim: what is requested, what was allocated for it, and which pods use it."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from parley.api.markers import ListMap, Moment, Rule, rules
from parley.api.meta import Condition, Model, NodeSelector, ObjectMeta
from parley.api.models.fields import EITHER, DriverName, Parameters, ParametersReference, ShortText
from parley.api.names import API_VERSION, LABEL, SUBDOMAIN


class ClaimSpec(Model):
    """What is requested. Immutable."""

    model_config = ConfigDict(json_schema_extra=EITHER)

    resource_class_name: Annotated[
        str, Field(min_length=1, max_length=253, description="The ResourceClass to allocate from.")
    ]
    parameters: Parameters | None = None
    parameters_ref: Annotated[
        ParametersReference | None,
        Field(
            description="An object in the claim's namespace that holds the parameters: a ConfigMap, as YAML or "
            "JSON under the key `parameters`, or an object of a kind that the driver supports, in its `spec`. "
            "Excludes `parameters`."
        ),
    ] = None
    allocation_mode: Annotated[
        Literal["WaitForFirstConsumer", "Immediate"],
        Field(
            description="WaitForFirstConsumer: allocated for the first pod that uses the claim. "
            "Immediate: allocated at once, on any suitable node."
        ),
    ] = "WaitForFirstConsumer"


class Device(Model):
    """An allocated device: its pool (DNS subdomains, separated by slashes) and its name there (a DNS label)."""

    pool: Annotated[str, Field(max_length=253, pattern=f"^{SUBDOMAIN}(/{SUBDOMAIN})*$")]
    device: Annotated[str, Field(max_length=63, pattern=f"^{LABEL}$")]


class Handle(Model):
    """What a driver passes to its node plugin for the claim."""

    driver_name: DriverName
    devices: Annotated[tuple[Device, ...], Field(max_length=32)] = ()
    data: Annotated[
        dict[str, Any] | None, Field(description="Opaque data in the driver's schema; at most 10 KiB.")
    ] = None


MAX_YIELDS = 16
"""The maximum number of classes that a reservation yields to."""

YieldsTo = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=253)], ...], Field(max_length=MAX_YIELDS)]
"""Names of ResourceClasses."""

Hold = Literal["Ledger", "Nominated"]
"""How other pods are kept out of reserved room: by Parley's own decisions, or by the scheduler as well."""


class Reserve(Model):
    """Room reserved on a claim's node for the pods that use the claim. Their requests count against it first."""

    amounts: Annotated[
        dict[ShortText, Annotated[str, Field(max_length=64)]],
        Field(max_length=16, description="The reserved quantities by resource name, such as cpu."),
    ] = Field(default_factory=dict)
    pods: Annotated[int, Field(ge=0, le=10_000, description="How many pod slots are reserved.")] = 0
    hold: Annotated[
        Hold,
        Field(
            description="Ledger: Parley counts the room as taken when it decides where pods fit. Nominated: "
            "reservation pods also make the scheduler keep all other pods out."
        ),
    ] = "Ledger"
    yields_to: Annotated[
        YieldsTo,
        Field(
            description="Names of ResourceClasses. Until it ends, a pod with a claim of one of these classes may "
            "use reserved room that no user of this claim uses.",
        ),
    ] = ()


class Allocation(Model):
    """What a driver allocated. Immutable; it can only be cleared."""

    handles: Annotated[tuple[Handle, ...], Field(max_length=32)] = ()
    available_on_nodes: Annotated[
        NodeSelector | None, Field(description="The nodes where the claim can be used. If left out, all nodes.")
    ] = None
    shareable: Annotated[bool, Field(description="Whether several pods may use the claim at the same time.")] = (
        False
    )
    units: Annotated[
        int | None,
        Field(
            ge=0,
            description="How many units the claim counts towards its class's limits. Set if its parameters come "
            "from the object that a `parametersRef` names.",
        ),
    ] = None
    reserve: Annotated[
        Reserve | None,
        Field(description="Room reserved on the claim's node for the pods that use it, while it is allocated."),
    ] = None


class Consumer(Model):
    """A pod that may use the claim."""

    api_group: ShortText = ""
    resource: ShortText = "pods"
    name: Annotated[str, Field(min_length=1, max_length=253)]
    uid: Annotated[str, Field(min_length=1, max_length=64)]


_REQUESTED = "(has({0}.deallocationRequested) && {0}.deallocationRequested)"
_NO_USERS = "(!has(self.reservedFor) || size(self.reservedFor) == 0)"

_STATUS_RULES = rules(
    Rule(
        "!has(self.allocation) || has(self.driverName)",
        "driverName is required while allocation is set: name the driver that allocated.",
        "driverName",
    ),
    Rule(
        f"has(self.allocation) || {_NO_USERS}",
        "reservedFor must be empty while nothing is allocated: set allocation in the same write, "
        "or clear reservedFor together with it.",
        "reservedFor",
    ),
    Rule(
        "!has(self.reservedFor) || size(self.reservedFor) <= 1 || !has(self.allocation) || "
        "(has(self.allocation.shareable) && self.allocation.shareable)",
        "reservedFor can hold one pod only, because allocation.shareable is not true: remove the other pod first, "
        "or use a ResourceClass that is shareable.",
        "reservedFor",
    ),
    Rule(
        f"!{_REQUESTED.format('self')} || has(self.allocation)",
        "deallocationRequested must be left out while nothing is allocated: clear it together with allocation.",
        "deallocationRequested",
    ),
    Rule(
        f"!{_REQUESTED.format('self')} || {_NO_USERS}",
        "deallocationRequested and reservedFor exclude each other: remove every pod from reservedFor before "
        "requesting deallocation, and add none until the driver has deallocated.",
        "deallocationRequested",
    ),
    Rule(
        f"!{_REQUESTED.format('oldSelf')} || {_REQUESTED.format('self')} || !has(self.allocation)",
        "deallocationRequested can be cleared only together with allocation: the driver clears both in one write.",
        "deallocationRequested",
    ),
)


class ClaimStatus(Model):
    """The state of the claim. The rules are those of classic DRA (Kubernetes 1.26 to 1.31)."""

    model_config = ConfigDict(json_schema_extra=_STATUS_RULES)

    driver_name: DriverName | None = None
    allocation: Annotated[
        Allocation | None,
        Rule("self == oldSelf", "allocation cannot be changed once it is set: clear it, then set the new one."),
    ] = None
    reserved_for: Annotated[
        tuple[Consumer, ...],
        ListMap(("uid",)),
        Field(max_length=256, description="The pods that may use the claim."),
    ] = ()
    deallocation_requested: Annotated[
        bool, Field(description="Requests that the driver deallocate the claim. No pod may use it meanwhile.")
    ] = False
    kept_until: Annotated[
        str | None,
        Moment(),
        Field(
            description="Until when the claim stays allocated without users, from `whenUnused` of its class. A "
            "pod that starts to use the claim before then may use it longer."
        ),
    ] = None
    conditions: Annotated[tuple[Condition, ...], ListMap(("type",)), Field(max_length=16)] = ()


class ResourceClaim(Model):
    """A request for a resource. Pods name the claim in `spec.resourceClaims[].resourceClaimName`."""

    api_version: Literal["parley.dev/v1alpha1"] = API_VERSION
    kind: Literal["ResourceClaim"] = "ResourceClaim"
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        ClaimSpec,
        Rule(
            "self == oldSelf",
            "spec is immutable: to request something else, delete the claim and create it again.",
        ),
    ]
    status: ClaimStatus = ClaimStatus()
