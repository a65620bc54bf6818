"""Types that Parley's kinds share: the pydantic base class, object metadata, conditions, label and node selectors.

Field names are snake_case here and camelCase on the wire. Models are frozen: a change is a new object or a
patch. Unknown fields are ignored when reading, because a newer server may send more than we know.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from parley.api.markers import Moment, Rule, rules


class Model(BaseModel):
    """Base class of all models of the API."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
    )

    def wire(self) -> dict[str, object]:
        """The JSON form, without fields that were not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


class OwnerReference(Model):
    """An entry of `metadata.ownerReferences`."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Model):
    """The part of Kubernetes' ObjectMeta that Parley reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    # pydantic deep-copies a default of {} for each object that is read, which took longer than all the rest.
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Condition(Model):
    """A condition as in Kubernetes (metav1.Condition). `type` is the key of the list."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[
        str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ]
    message: Annotated[str, Field(max_length=32768)]
    last_transition_time: Annotated[str, Moment()]
    observed_generation: Annotated[int, Field(ge=0)] | None = None


class LabelSelectorRequirement(Model):
    """A requirement on a label."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "(self.operator in ['Exists', 'DoesNotExist']) != (has(self.values) && size(self.values) > 0)",
                "values are required for the operators In and NotIn, and must be left out for Exists and "
                "DoesNotExist.",
                "values",
            )
        )
    )

    key: Annotated[str, Field(min_length=1, max_length=317)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=64)] = ()

    def __str__(self) -> str:
        """As kubectl prints it."""
        listed = f"({', '.join(self.values)})"
        return {
            "In": f"{self.key} in {listed}",
            "NotIn": f"{self.key} notin {listed}",
            "Exists": self.key,
            "DoesNotExist": f"!{self.key}",
        }[self.operator]


class LabelSelector(Model):
    """A metav1.LabelSelector: all requirements must hold. An empty selector matches everything."""

    match_labels: Annotated[
        dict[str, Annotated[str, Field(max_length=63)]],
        Field(max_length=16),
        Rule("self.all(name, size(name) <= 317)", "the name of a label has at most 317 characters."),
    ] = Field(default_factory=dict)
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Field(max_length=16)] = ()

    def __str__(self) -> str:
        """As kubectl prints it."""
        plain = (f"{name}={value}" for name, value in sorted(self.match_labels.items()))
        return ",".join((*plain, *map(str, self.match_expressions)))


class NodeSelectorRequirement(Model):
    """A requirement on a label of the node or, in `matchFields`, on its `metadata.name`."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "(self.operator in ['Exists', 'DoesNotExist']) != (has(self.values) && size(self.values) > 0)",
                "values are required for the operators In, NotIn, Gt and Lt, and must be left out for Exists and "
                "DoesNotExist.",
                "values",
            )
        )
    )

    key: Annotated[str, Field(min_length=1, max_length=317)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=1024)] = ()


class NodeSelectorTerm(Model):
    """All requirements must hold. An empty term matches no node."""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], Field(max_length=16)] = ()
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], Field(max_length=16)] = ()


MAX_COMPARED = 256
"""The maximum number of terms and requirements of a selector together: each may be compared with every node."""

MAX_VALUES = 4096
"""The maximum number of values of all these requirements together."""

_REQUIREMENTS = ("matchExpressions", "matchFields")
_COMPARED = " + ".join(f"(has(t.{name}) ? size(t.{name}) : 0)" for name in _REQUIREMENTS)
_VALUES = " + ".join(
    f"(has(t.{name}) ? t.{name}.map(r, has(r.values) ? size(r.values) : 0).sum() : 0)" for name in _REQUIREMENTS
)


class NodeSelector(Model):
    """One of the terms must match. The size is limited, because a selector is compared with all nodes."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                f"self.nodeSelectorTerms.map(t, 1 + {_COMPARED}).sum() <= {MAX_COMPARED}",
                f"at most {MAX_COMPARED} terms and requirements are allowed in all: select nodes by fewer labels.",
                "nodeSelectorTerms",
            ),
            Rule(
                f"self.nodeSelectorTerms.map(t, {_VALUES}).sum() <= {MAX_VALUES}",
                f"at most {MAX_VALUES} values are allowed in all requirements: select nodes by a label that they "
                "have in common.",
                "nodeSelectorTerms",
            ),
        )
    )

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=128)]
