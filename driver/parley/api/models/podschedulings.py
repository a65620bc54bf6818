"""PodScheduling: the negotiation for one pod: candidate nodes, the drivers' answers and the selected node."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from parley.api.markers import ListMap, Rule, rules
from parley.api.meta import Model, NodeSelector, ObjectMeta
from parley.api.models.fields import DriverName, NodeName, ShortText
from parley.api.names import API_VERSION


class ScheduledClaim(Model):
    """A claim of the pod that a standalone driver answers for and allocates."""

    name: Annotated[
        str, Field(min_length=1, max_length=63, description="The name of the entry in pod.spec.resourceClaims.")
    ]
    driver_name: DriverName
    resource_claim_name: Annotated[
        str, Field(min_length=1, max_length=253, description="The name of the parley.dev ResourceClaim.")
    ]


class PodSchedulingSpec(Model):
    """The controller's side of the negotiation: the candidate nodes and the selected node."""

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
            description="The pod's priority, set if standalone drivers are asked. Of the pods that wait for the "
            "same resource, the one with the highest priority is served first; if equal, the first to arrive.",
        ),
    ] = 0
    candidate_nodes: Annotated[
        tuple[NodeName, ...],
        Field(max_length=128, description="The nodes that drivers are asked about, best first."),
    ] = ()
    round: Annotated[int, Field(ge=0, description="Increases with each question to the drivers.")] = 0
    selected_node: Annotated[
        ShortText, Field(description="The node where the drivers allocate; empty while none is selected.")
    ] = ""


class Alternatives(Model):
    """Nodes that a driver proposes instead of the candidates, by name or by selector."""

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
    """Why a driver could not allocate the claim on the selected node."""

    node_name: NodeName
    message: Annotated[str, Field(max_length=1024)] = ""
    permanent: Annotated[
        bool, Field(description="Whether the driver can never allocate the claim on this node.")
    ] = False


Unanswerable = Literal[
    "ParametersInvalid", "ParametersNotFound", "ParametersForbidden", "ParametersNotRead", "DriverFailed"
]
"""The reason codes of questions that a driver can't answer."""


class ClaimScheduling(Model):
    """A driver's answer for one of the pod's claims."""

    name: Annotated[
        str, Field(min_length=1, max_length=63, description="The name of the entry in pod.spec.resourceClaims.")
    ]
    driver_name: DriverName
    round: Annotated[
        int, Field(ge=0, description="The round that this answers. An answer to an older round is ignored.")
    ]
    viable_nodes: Annotated[
        tuple[NodeName, ...],
        Field(max_length=128, description="The candidates where the driver can allocate the claim now."),
    ] = ()
    alternatives: Alternatives | None = None
    scores: Annotated[
        dict[NodeName, Annotated[int, Field(ge=0, le=100)]],
        Field(
            max_length=128,
            description="The driver's scores of the viable nodes; 100 is best. Nodes that are left out have 0.",
        ),
    ] = Field(default_factory=dict)
    capacity: Annotated[
        dict[NodeName, Annotated[int, Field(ge=1, le=1000)]],
        Field(
            max_length=128,
            description="For how many pods with the same claims a viable node has enough, this pod included. The "
            "node may be selected for that many pods without asking the driver again.",
        ),
    ] = Field(default_factory=dict)
    reason: Annotated[str, Field(max_length=4096, description="Why the other candidates are not viable.")] = ""
    waiting_for: Annotated[
        Unanswerable | None,
        Field(
            description="Why the driver can't answer, whatever the node: a reason code, which the pod gets as its "
            "own. `reason` has the message, and no node is viable."
        ),
    ] = None
    failure: Annotated[
        AllocationFailure | None, Field(description="Why the claim could not be allocated on the selected node.")
    ] = None

    @property
    def says_anything(self) -> bool:
        """Whether the entry holds an answer. Drivers are not asked about claims that were allocated before."""
        answers = self.viable_nodes, self.reason, self.waiting_for, self.alternatives is not None
        return any(answers)


class PodSchedulingStatus(Model):
    """The drivers' answers, and the state of the negotiation."""

    claims: Annotated[tuple[ClaimScheduling, ...], ListMap(("name",)), Field(max_length=128)] = ()
    candidates: Annotated[int, Field(ge=0, description="How many nodes the drivers were asked about.")] = 0
    viable: Annotated[int, Field(ge=0, description="How many of them are viable for every claim.")] = 0
    waiting_for: Annotated[
        str, Field(max_length=256, description="Why the pod waits, as a stable reason code; empty once bound.")
    ] = ""
    message: Annotated[
        str, Field(max_length=4096, description="A human-readable message: why the pod waits and what would help.")
    ] = ""


class PodScheduling(Model):
    """The negotiation for the pod of the same name and namespace, which owns this object."""

    api_version: Literal["parley.dev/v1alpha1"] = API_VERSION
    kind: Literal["PodScheduling"] = "PodScheduling"
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSchedulingSpec = PodSchedulingSpec()
    status: PodSchedulingStatus = PodSchedulingStatus()
