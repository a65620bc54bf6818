"""ResourceClass: which driver allocates, with which parameters, and how much each namespace may hold."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from parley.api.markers import ListMap, Rule, rules
from parley.api.meta import Condition, LabelSelector, Model, NodeSelector, ObjectMeta
from parley.api.models.fields import EITHER, MAX_DEADLINE, DriverName, Parameters, ParametersReference
from parley.api.names import API_VERSION, LABEL


class ClassParametersReference(ParametersReference):
    """An object that holds parameters, as for a claim, but in any namespace."""

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
        Field(
            max_length=63, pattern=f"^({LABEL})?$", description="Its namespace; empty for a cluster-scoped kind."
        ),
    ] = ""


class Limit(Model):
    """How much of a class each namespace may hold at a time."""

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
        int | None,
        Field(ge=0, description="The maximum number of units: what the driver counts, such as devices or tokens."),
    ] = None


class ClassStatus(Model):
    """Whether the class can be used, and how many units it has. The controller updates it every few seconds."""

    conditions: Annotated[tuple[Condition, ...], ListMap(("type",)), Field(max_length=16)] = ()
    total: Annotated[
        int | None,
        Field(
            ge=0,
            description="How many units, such as devices or tokens, there are on the nodes of the class.",
        ),
    ] = None
    free: Annotated[int | None, Field(ge=0, description="How many of them no claim holds.")] = None


class WhenUnused(Model):
    """What happens to a claim that no pod uses any more."""

    keep_seconds: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_DEADLINE,
            description="How long a claim stays allocated after the last pod that used it has ended. The claim's "
            "`status.keptUntil` is the resulting time. What the driver's node part keeps for the claim, such as a "
            "directory, stays as long.",
        ),
    ]


class ResourceClass(Model):
    """A kind of resource that one driver provides."""

    model_config = ConfigDict(json_schema_extra=EITHER)

    api_version: Literal["parley.dev/v1alpha1"] = API_VERSION
    kind: Literal["ResourceClass"] = "ResourceClass"
    metadata: ObjectMeta = ObjectMeta()
    driver_name: DriverName
    parameters: Parameters | None = None
    parameters_ref: Annotated[
        ClassParametersReference | None,
        Field(
            description="An object that holds the parameters: a ConfigMap, as YAML or JSON under the key "
            "`parameters`, or an object of a kind that the driver supports, in its `spec`. Excludes `parameters`."
        ),
    ] = None
    suitable_nodes: Annotated[
        NodeSelector | None,
        Field(description="The only nodes where claims can be allocated. If left out, all nodes."),
    ] = None
    shareable: Annotated[
        bool, Field(description="Whether several pods may use one claim of this class at the same time.")
    ] = False
    placement: Annotated[
        Literal["Optimistic", "Exact"],
        Field(
            description="Optimistic: Parley selects the node, and continues as with Exact if the scheduler "
            "refuses it. Exact: the scheduler selects among the viable nodes from the start (about 5 s longer)."
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
            description="Which viable nodes are preferred. Pack: those with the least left of what the driver "
            "allocates, so that large free blocks stay whole; among equals, those with the most pods. "
            "Spread: the opposite. If left out: Pack if the class is not shareable and its driver reports what is "
            "left on a node, otherwise Spread."
        ),
    ] = None
    score_weight: Annotated[
        int, Field(ge=0, le=100, description="The weight of the driver's scores of viable nodes.")
    ] = 1
    allocation_timeout_seconds: Annotated[
        int,
        Field(
            ge=1,
            le=86400,
            description="If a standalone or asynchronous driver takes longer to allocate, the allocation is "
            "aborted and another node is tried.",
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
            "first with neither `namespaces` nor `namespaceSelector`.",
        ),
    ] = ()
    when_unused: Annotated[
        WhenUnused | None,
        Field(
            description="What happens to a named claim that no pod uses any more. Applies to claims with "
            "allocationMode WaitForFirstConsumer of a driver inside the controller. If left out, a claim is "
            "deallocated when its last pod has ended. The value at the time when a pod ends counts; a deadline "
            "that is already set stays."
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
        """`prefer`, or Spread if it is unset and the class is shareable. None: Pack if the driver reports what is
        left on a node, otherwise Spread."""
        return "Spread" if self.prefer is None and self.shareable else self.prefer

    @property
    def selects_namespaces(self) -> bool:
        """Whether a limit selects namespaces by label."""
        return any(limit.namespace_selector is not None for limit in self.limits)

    @property
    def revision(self) -> tuple[str, int]:
        """UID and generation. Changes with the class's content, but not with its status."""
        return self.metadata.uid, self.metadata.generation
