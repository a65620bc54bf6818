"""ResourceClaimTemplate: creates a claim for each pod, or one for all pods with the same value of a label."""

from typing import Annotated, Literal

from pydantic import Field

from parley.api.markers import Rule
from parley.api.meta import Model, ObjectMeta
from parley.api.models.claims import ClaimSpec
from parley.api.models.fields import LabelKey, ShortText
from parley.api.names import API_VERSION, LABEL, SUBDOMAIN


class TemplateMeta(Model):
    """Labels and annotations of the claims that are created from a template."""

    labels: Annotated[
        dict[str, ShortText],
        Field(max_length=128),
        Rule(
            "self.all(name, size(name) <= 317 && size(self[name]) <= 63)",
            "the name of a label has at most 317 characters (63 after its prefix), its value at most 63.",
        ),
    ] = Field(default_factory=dict)
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=262144)]],
        Field(max_length=128),
        Rule("self.all(name, size(name) <= 317)", "the name of an annotation has at most 317 characters."),
    ] = Field(default_factory=dict)


class SharingOwner(Model):
    """The object that owns a shared claim, identified by labels of the pods that name the claim."""

    api_version: Annotated[
        str,
        Field(
            min_length=1,
            max_length=317,
            pattern=f"^({SUBDOMAIN}/)?{LABEL}$",
            description="Its API version, as in an owner reference, such as tekton.dev/v1.",
        ),
    ]
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Z][A-Za-z0-9]*$")]
    name_label: Annotated[
        LabelKey | None, Field(description="The pod label with the object's name. If left out, `podLabel`.")
    ] = None
    uid_label: Annotated[LabelKey, Field(description="The pod label with the object's UID.")]


class SharedBy(Model):
    """Which pods share a claim: those with the same value of a label."""

    pod_label: Annotated[
        LabelKey,
        Field(
            description="The label whose value the pods have in common. If a pod with this label names the claim "
            "`<template>-<value>` in `spec.resourceClaims[].resourceClaimName`, a missing claim is created."
        ),
    ]
    owner: Annotated[
        SharingOwner | None,
        Field(description="The claim is deleted with this object. If left out, it stays until a user deletes it."),
    ] = None


class TemplateSpec(Model):
    """Describes the claims that are created from the template. Immutable."""

    metadata: TemplateMeta = TemplateMeta()
    spec: ClaimSpec
    shared_by: Annotated[
        SharedBy | None,
        Field(
            description="Creates one claim for many pods, such as all pods of a pipeline run, when the first of "
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
