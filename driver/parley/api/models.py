"""The five kinds of `parley.dev/v1alpha1`. The CRDs in `crds/` are generated from this file.

Rules that one field cannot express (immutability, what a claim's status may become) are CEL rules, declared
beside the field or model with `Rule` and checked by the API server. Two things CEL cannot see: the size of
`parameters` and `data` (the built-in claim that carries them is limited to 10 KiB), and whether a claim is being
deleted (the admission policy in `deploy/base/claims.yaml` refuses new users of such a claim).
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from parley.api.markers import ListMap, Moment, Rule, rules
from parley.api.meta import Condition, LabelSelector, Model, NodeSelector, ObjectMeta
from parley.api.names import API_VERSION, LABEL, SUBDOMAIN

DriverName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern=f"^{SUBDOMAIN}$",
        description="A DNS subdomain, such as device.parley.dev.",
    ),
]
NodeName = Annotated[str, Field(min_length=1, max_length=253)]
Parameters = Annotated[
    dict[str, Any],
    Field(description="Parameters in the driver's schema; at most 10 KiB as JSON. The driver validates them."),
]
ShortText = Annotated[str, Field(max_length=253)]
LabelKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=317,
        pattern=rf"^({SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        description="The key of a label, such as example.com/run.",
    ),
]

_EITHER = rules(
    Rule(
        "!has(self.parametersRef) || !has(self.parameters)",
        "parameters and parametersRef exclude each other: leave one of them out.",
        "parametersRef",
    )
)


class ParametersReference(Model):
    """An object that holds parameters: a ConfigMap, in its data key `parameters`, as YAML or JSON; or an object
    of a kind that the driver supports, in its `spec`."""

    api_group: Annotated[
        str, Field(max_length=253, pattern=f"^({SUBDOMAIN})?$", description="Empty for a ConfigMap.")
    ] = ""
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Z][A-Za-z0-9]*$")]
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=f"^{SUBDOMAIN}$")]


class ClassParametersReference(ParametersReference):
    """An object that holds parameters, as in a claim, but in any namespace."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.kind != 'ConfigMap' || (has(self.apiGroup) && self.apiGroup != '') || "
                "(has(self.namespace) && self.namespace != '')",
                "namespace is missing: set the namespace of the ConfigMap.",
                "namespace",
            )
        )
    )

    namespace: Annotated[
        str,
        Field(max_length=63, pattern=f"^({LABEL})?$", description="Empty for a cluster-scoped kind."),
    ] = ""


class Limit(Model):
    """The most that one namespace may hold of a class at a time."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.namespaceSelector) || !has(self.namespaces) || size(self.namespaces) == 0",
                "namespaces and namespaceSelector exclude each other: leave one of them out, or add a second "
                "limit.",
                "namespaceSelector",
            )
        )
    )

    namespaces: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=63)], ...],
        Field(max_length=256, description="The limit applies to each of these namespaces."),
    ] = ()
    namespace_selector: Annotated[
        LabelSelector | None, Field(description="The limit applies to each namespace with these labels.")
    ] = None
    claims: Annotated[int | None, Field(ge=0, description="The maximum number of allocated claims.")] = None
    units: Annotated[
        int | None, Field(ge=0, description="The maximum of what the driver counts, such as devices or tokens.")
    ] = None


class ClassStatus(Model):
    """Whether the class can be used, and how much of it there is. The controller updates it every few seconds."""

    conditions: Annotated[tuple[Condition, ...], ListMap(("type",)), Field(max_length=16)] = ()
    total: Annotated[
        int | None,
        Field(
            ge=0,
            description="How much there is on its nodes, in what the driver counts, such as devices or tokens.",
        ),
    ] = None
    free: Annotated[int | None, Field(ge=0, description="How much of it is not held by any claim.")] = None


MAX_DEADLINE = 31_536_000
"""Seconds, a year: so far ahead deadlines may be."""


class WhenUnused(Model):
    """What happens to a claim that no pod uses any more."""

    keep_seconds: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_DEADLINE,
            description="How long a claim stays allocated after the last pod that used it has ended; "
            "`status.keptUntil` of the claim has the time. What the driver's node part keeps for the claim, "
            "such as a directory, stays as long.",
        ),
    ]


class ResourceClass(Model):
    """A kind of resource that one driver provides."""

    model_config = ConfigDict(json_schema_extra=_EITHER)

    api_version: Literal["parley.dev/v1alpha1"] = API_VERSION
    kind: Literal["ResourceClass"] = "ResourceClass"
    metadata: ObjectMeta = ObjectMeta()
    driver_name: DriverName
    parameters: Parameters | None = None
    parameters_ref: Annotated[
        ClassParametersReference | None,
        Field(description="An object that holds the parameters; excludes `parameters`."),
    ] = None
    suitable_nodes: Annotated[
        NodeSelector | None, Field(description="Only these nodes are eligible. If left out, all nodes are.")
    ] = None
    shareable: Annotated[
        bool, Field(description="Whether several pods may use one claim of this class at the same time.")
    ] = False
    placement: Annotated[
        Literal["Optimistic", "Exact"],
        Field(
            description="Optimistic: Parley selects the node; Exact follows if the scheduler refuses it. "
            "Exact: the scheduler selects among the viable nodes from the start (takes about 5 s longer)."
        ),
    ] = "Optimistic"
    node_part: Annotated[
        Literal["Required", "None"],
        Field(
            description="Required: the driver's node plugin prepares the claim on its node. "
            "None: nothing has to be prepared there, and no plugin is needed."
        ),
    ] = "Required"
    prefer: Annotated[
        Literal["Pack", "Spread"] | None,
        Field(
            description="Which of the viable nodes are preferred. Pack: those that have the least left of "
            "what the driver allocates, so that large free blocks stay whole; if equal, those with the most pods. "
            "Spread: the opposite. If left out: Pack if the class is not shareable and its driver reports what is "
            "left on a node, otherwise Spread."
        ),
    ] = None
    score_weight: Annotated[
        int, Field(ge=0, le=100, description="How much the driver's preference among viable nodes counts.")
    ] = 1
    allocation_timeout_seconds: Annotated[
        int,
        Field(
            ge=1, le=86400, description="An allocation that takes longer is aborted, and another node is tried."
        ),
    ] = 600
    on_permanent_error: Annotated[
        Literal["ExcludeNode", "FailPod"],
        Field(
            description="What happens if a driver reports that it can never allocate a claim on a node. "
            "ExcludeNode: other nodes are tried. FailPod: the pod fails, so that its controller replaces it."
        ),
    ] = "ExcludeNode"
    limits: Annotated[
        tuple[Limit, ...],
        Field(
            max_length=64,
            description="The first limit that names or selects a claim's namespace applies; if none does, the "
            "first limit without namespaces.",
        ),
    ] = ()
    when_unused: Annotated[
        WhenUnused | None,
        Field(
            description="Applies to claims that pods name, with allocationMode WaitForFirstConsumer, of a driver "
            "inside the controller. If left out, a claim is deallocated when its last pod has ended. The "
            "value when a pod leaves the claim counts; a deadline that is already set stays."
        ),
    ] = None
    preemption: Annotated[
        Literal["Never", "LowerPriority"],
        Field(
            description="LowerPriority: if no node can serve a claim of this class, pods of lower priority that "
            "hold exclusive claims of this class, or of other classes with LowerPriority, are evicted. Never: the "
            "pod waits."
        ),
    ] = "Never"
    status: ClassStatus = ClassStatus()

    @property
    def preference(self) -> Literal["Pack", "Spread"] | None:
        """Its `prefer`. None: left to whether the driver can tell what is left on a node."""
        return "Spread" if self.prefer is None and self.shareable else self.prefer

    @property
    def selects_namespaces(self) -> bool:
        """Whether one of its limits goes by the labels of namespaces."""
        return any(limit.namespace_selector is not None for limit in self.limits)

    @property
    def revision(self) -> tuple[str, int]:
        """Changes with what the class says, and not with its status."""
        return self.metadata.uid, self.metadata.generation


class ClaimSpec(Model):
    """What is requested. Immutable."""

    model_config = ConfigDict(json_schema_extra=_EITHER)

    resource_class_name: Annotated[
        str, Field(min_length=1, max_length=253, description="The ResourceClass to allocate from.")
    ]
    parameters: Parameters | None = None
    parameters_ref: Annotated[
        ParametersReference | None,
        Field(description="An object in the claim's namespace that holds the parameters; excludes `parameters`."),
    ] = None
    allocation_mode: Annotated[
        Literal["WaitForFirstConsumer", "Immediate"],
        Field(
            description="WaitForFirstConsumer: allocated for the first pod that uses the claim. "
            "Immediate: allocated at once, on any suitable node."
        ),
    ] = "WaitForFirstConsumer"


class Device(Model):
    """A device as the allocation names it; pool and device are lower-case DNS names."""

    pool: Annotated[str, Field(max_length=253, pattern=f"^{SUBDOMAIN}(/{SUBDOMAIN})*$")]
    device: Annotated[str, Field(max_length=63, pattern=f"^{LABEL}$")]


class Handle(Model):
    """What a driver passes to its node part."""

    driver_name: DriverName
    devices: Annotated[tuple[Device, ...], Field(max_length=32)] = ()
    data: Annotated[
        dict[str, Any] | None, Field(description="Data in the driver's own schema; at most 10 KiB.")
    ] = None


MAX_YIELDS = 16
"""So many classes a reservation yields to."""

YieldsTo = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=253)], ...], Field(max_length=MAX_YIELDS)]
"""Names of ResourceClasses."""

Hold = Literal["Ledger", "Nominated"]
"""Who is kept out of reserved room: pods that Parley judges, or also those that only the scheduler does."""


class Reserve(Model):
    """Room that is kept on a claim's node for the pods that use it. Their requests count against it first."""

    amounts: Annotated[
        dict[ShortText, Annotated[str, Field(max_length=64)]],
        Field(max_length=16, description="How much of the node's resources, by name."),
    ] = {}
    pods: Annotated[int, Field(ge=0, le=10_000, description="How many of the node's pod slots.")] = 0
    hold: Annotated[
        Hold,
        Field(
            description="Ledger: Parley keeps the pods that it negotiates for out of the room. Nominated: "
            "reservation pods make the scheduler keep all other pods out, too."
        ),
    ] = "Ledger"
    yields_to: Annotated[
        YieldsTo,
        Field(
            description="Names of ResourceClasses. Pods with a claim of such a class may use what no user of this "
            "claim uses, until they end.",
        ),
    ] = ()


class Allocation(Model):
    """What a driver allocated. Immutable; it can only be cleared."""

    handles: Annotated[tuple[Handle, ...], Field(max_length=32)] = ()
    available_on_nodes: Annotated[
        NodeSelector | None, Field(description="Where the claim can be used. If left out, on every node.")
    ] = None
    shareable: Annotated[bool, Field(description="Whether several pods may use the claim at the same time.")] = (
        False
    )
    units: Annotated[
        int | None,
        Field(
            ge=0,
            description="How much the claim counts in the limits of its class, if its parameters come from an "
            "object that `parametersRef` names.",
        ),
    ] = None
    reserve: Annotated[
        Reserve | None,
        Field(description="Room on the claim's node for the pods that use it, as long as it is allocated."),
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
    """The state of the claim. The rules are those of Kubernetes 1.26 to 1.31."""

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
        bool, Field(description="Requests that the driver deallocate; no pod may use the claim meanwhile.")
    ] = False
    kept_until: Annotated[
        str | None,
        Moment(),
        Field(
            description="How long the claim stays allocated if no pod uses it, by `whenUnused` of its class. A "
            "pod that uses it in the meantime may do so for longer."
        ),
    ] = None
    conditions: Annotated[tuple[Condition, ...], ListMap(("type",)), Field(max_length=16)] = ()


class ResourceClaim(Model):
    """A request for a resource, which pods name in `spec.resourceClaims[].resourceClaimName`."""

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


class TemplateMeta(Model):
    """Labels and annotations of the claims that are created from a template."""

    labels: Annotated[
        dict[str, ShortText],
        Field(max_length=128),
        Rule(
            "self.all(name, size(name) <= 317 && size(self[name]) <= 63)",
            "the name of a label has at most 317 characters (63 after its prefix), its value at most 63.",
        ),
    ] = {}
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=262144)]],
        Field(max_length=128),
        Rule("self.all(name, size(name) <= 317)", "the name of an annotation has at most 317 characters."),
    ] = {}


class SharingOwner(Model):
    """The object that owns a shared claim, found by labels of the pods that name the claim."""

    api_version: Annotated[
        str,
        Field(
            min_length=1,
            max_length=317,
            pattern=f"^({SUBDOMAIN}/)?{LABEL}$",
            description="As in an owner reference, such as tekton.dev/v1.",
        ),
    ]
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Z][A-Za-z0-9]*$")]
    name_label: Annotated[
        LabelKey | None, Field(description="The label with the object's name. Default: `podLabel`.")
    ] = None
    uid_label: Annotated[LabelKey, Field(description="The label with the object's UID.")]


class SharedBy(Model):
    """Which pods share a claim: those with the same value of a label."""

    pod_label: Annotated[
        LabelKey,
        Field(
            description="If a pod with this label names the claim `<template>-<value>` in "
            "`spec.resourceClaims[].resourceClaimName`, the claim is created if it does not exist."
        ),
    ]
    owner: Annotated[
        SharingOwner | None,
        Field(
            description="The claim is deleted with this object. If left out, it stays until somebody deletes it."
        ),
    ] = None


class TemplateSpec(Model):
    """What each claim that is created from the template looks like. Immutable."""

    metadata: TemplateMeta = TemplateMeta()
    spec: ClaimSpec
    shared_by: Annotated[
        SharedBy | None,
        Field(
            description="Creates one claim for many pods, such as all pods of a pipeline's run, when the first of "
            "them names it. Labels and annotations of parley.dev are then not copied from `metadata`."
        ),
    ] = None


class ResourceClaimTemplate(Model):
    """Creates one claim for each pod that names it in `spec.resourceClaims[].resourceClaimTemplateName`."""

    api_version: Literal["parley.dev/v1alpha1"] = API_VERSION
    kind: Literal["ResourceClaimTemplate"] = "ResourceClaimTemplate"
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        TemplateSpec,
        Rule(
            "self == oldSelf",
            "spec is immutable: delete the template and create it again; existing claims stay as they are.",
        ),
    ]


class ScheduledClaim(Model):
    """A claim of the pod that a standalone driver is asked about, and allocates."""

    name: Annotated[str, Field(min_length=1, max_length=63, description="The entry in pod.spec.resourceClaims.")]
    driver_name: DriverName
    resource_claim_name: Annotated[
        str, Field(min_length=1, max_length=253, description="The ResourceClaim of parley.dev.")
    ]


class PodSchedulingSpec(Model):
    """The scheduler's side of the negotiation."""

    claims: Annotated[
        tuple[ScheduledClaim, ...],
        ListMap(("name",)),
        Field(max_length=128, description="The claims that standalone drivers have to allocate."),
    ] = ()
    priority: Annotated[
        int,
        Field(
            ge=-(2**31),
            le=2**31 - 1,
            description="The pod's priority. Of pods that wait for the same resource, the one with the highest "
            "priority is served first; if equal, the one that came first. Set if standalone drivers are asked.",
        ),
    ] = 0
    candidate_nodes: Annotated[
        tuple[NodeName, ...], Field(max_length=128, description="In order of preference, best first.")
    ] = ()
    round: Annotated[int, Field(ge=0, description="Increases with each question to the drivers.")] = 0
    selected_node: Annotated[
        ShortText, Field(description="The node where the drivers allocate; empty while none is selected.")
    ] = ""


class Alternatives(Model):
    """Nodes that a driver proposes instead of the candidates: by name, or by selector."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.nodeSelector) || !has(self.nodes) || size(self.nodes) == 0",
                "nodes and nodeSelector exclude each other: leave one of them out.",
                "nodeSelector",
            )
        )
    )

    nodes: Annotated[tuple[NodeName, ...], Field(max_length=32)] = ()
    node_selector: NodeSelector | None = None


class AllocationFailure(Model):
    """Why a driver could not allocate on the selected node."""

    node_name: NodeName
    message: Annotated[str, Field(max_length=1024)] = ""
    permanent: Annotated[
        bool, Field(description="Whether the driver can never allocate the claim on this node.")
    ] = False


class ClaimScheduling(Model):
    """One driver's answer for one of the pod's claims."""

    name: Annotated[str, Field(min_length=1, max_length=63, description="The entry in pod.spec.resourceClaims.")]
    driver_name: DriverName
    round: Annotated[
        int, Field(ge=0, description="The round that this answers; an answer to an older round does not count.")
    ]
    viable_nodes: Annotated[tuple[NodeName, ...], Field(max_length=128)] = ()
    alternatives: Alternatives | None = None
    scores: Annotated[
        dict[NodeName, Annotated[int, Field(ge=0, le=100)]],
        Field(
            max_length=128,
            description="Preference among the viable nodes; 100 is best. Nodes that are left out have 0.",
        ),
    ] = {}
    capacity: Annotated[
        dict[NodeName, Annotated[int, Field(ge=1, le=1000)]],
        Field(
            max_length=128,
            description="For how many pods with the same claims there is enough on a viable node, this pod "
            "included. For so many of them the node may be selected without a question.",
        ),
    ] = {}
    reason: Annotated[str, Field(max_length=4096, description="Why the other candidates are not viable.")] = ""
    failure: Annotated[
        AllocationFailure | None, Field(description="Why the claim could not be allocated on the selected node.")
    ] = None


class PodSchedulingStatus(Model):
    """The drivers' side of the negotiation, and its state."""

    claims: Annotated[tuple[ClaimScheduling, ...], ListMap(("name",)), Field(max_length=128)] = ()
    candidates: Annotated[int, Field(ge=0, description="How many nodes were proposed.")] = 0
    viable: Annotated[int, Field(ge=0, description="How many of them are viable for every claim.")] = 0
    waiting_for: Annotated[str, Field(max_length=256, description="A stable reason code; empty once bound.")] = ""
    message: Annotated[
        str, Field(max_length=4096, description="Why the pod waits and what would help, for people.")
    ] = ""


class PodScheduling(Model):
    """The negotiation of one pod: same name and namespace, owned by it."""

    api_version: Literal["parley.dev/v1alpha1"] = API_VERSION
    kind: Literal["PodScheduling"] = "PodScheduling"
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSchedulingSpec = PodSchedulingSpec()
    status: PodSchedulingStatus = PodSchedulingStatus()


class ReleasedClaim(Model):
    """The built-in claim that the kubelet may still have prepared."""

    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    name: Annotated[str, Field(min_length=1, max_length=253)]
    uid: Annotated[str, Field(min_length=1, max_length=64)]


class RunningUser(Model):
    """A pod that runs with a generated claim that somebody deleted."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    uid: Annotated[str, Field(min_length=1, max_length=64)]
    pod_claim_name: Annotated[
        str, Field(min_length=1, max_length=253, description="The entry in the pod's spec.resourceClaims.")
    ]


class ClaimReleaseSpec(Model):
    """Which claim may still be prepared, on which node, and what of the driver it holds. Immutable."""

    claim: ReleasedClaim
    node_name: NodeName
    driver_name: DriverName
    holding_uid: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="The UID by which the driver knows the allocation: that of the ResourceClaim of "
            "parley.dev, or of the built-in claim that was generated first.",
        ),
    ]
    resource_class_name: ShortText = ""
    units: Annotated[int, Field(ge=0, description="How much it counts in the limits of its class.")] = 1
    allocation: Annotated[Allocation, Field(description="The allocation that is not free for other pods yet.")]
    remove_data: Annotated[
        bool,
        Field(
            description="The claim has ended. Before the node plugin confirms, its driver removes the data that "
            "pods left on the node for the claim."
        ),
    ] = False
    node_lost: Annotated[
        bool,
        Field(
            description="The node was deleted or out of service when the claim ended there, or was allocated "
            "again elsewhere. Nothing waits for the node: if it comes back, its node plugin removes the data."
        ),
    ] = False
    running: Annotated[
        RunningUser | None,
        Field(
            description="The pod that still runs with the claim, although its generated claim was deleted: the "
            "claim that is created again for the pod gets the same allocation."
        ),
    ] = None


class ClaimReleaseStatus(Model):
    """The progress of the release."""

    allocation_cleared: Annotated[
        bool,
        Field(
            description="Whether the built-in claim shows no allocation any more, so that it cannot be prepared "
            "again: the node plugin confirms only then."
        ),
    ] = False


class ClaimRelease(Model):
    """A claim that one node may still have prepared, because a pod that used it there was force-deleted, or whose
    data the node has to remove. What was allocated is free for other pods when the node's plugin has deleted this
    object: then nothing is prepared or left there."""

    api_version: Literal["parley.dev/v1alpha1"] = API_VERSION
    kind: Literal["ClaimRelease"] = "ClaimRelease"
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ClaimReleaseSpec, Rule("self == oldSelf", "spec is immutable: it records what happened.")]
    status: ClaimReleaseStatus = ClaimReleaseStatus()
