"""What built-in kinds share: the base class, object metadata, label and node selectors, conditions."""

import msgspec

Quantity = str | int | float
"""A Kubernetes quantity as it arrives; see `parley.api.quantity.parse`."""


class Struct(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Base of all: camelCase on the wire, immutable."""


class OwnerReference(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class NodeSelectorRequirement(Struct, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Struct, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[NodeSelectorRequirement] = []


class NodeSelectorTerm(Struct, frozen=True):
    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Struct, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] = []


class Condition(Struct, frozen=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
