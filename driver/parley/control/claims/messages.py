"""Messages about problems of claims and templates: each names the object and the remedy. Pure."""

from parley.control.objects.class_request import MAX_PARAMETERS_BYTES


def taken(kind: str, namespace: str, name: str) -> str:
    """The message about a built-in object that has the mirror's name and is not Parley's."""
    return (
        f"a resource.k8s.io {kind} {namespace}/{name} exists that Parley did not create: "
        f"delete it, or give the parley.dev {kind} another name"
    )


def made_from_taken(claim: str, entry: str, template: str) -> str:
    """The message about a claim that Kubernetes made from a built-in template that has the mirror's name."""
    return (
        f"claim {claim} for {entry!r} was made from a resource.k8s.io ResourceClaimTemplate {template} that "
        "Parley did not create: delete that template, if it still exists, and recreate the pod, or give the "
        "parley.dev ResourceClaimTemplate another name"
    )


def refused(kind: str, namespace: str, name: str, why: str) -> str:
    """The message about a mirror that the API server refused."""
    return (
        f"the API server refused the resource.k8s.io {kind} that stands for {namespace}/{name}: {why}: "
        "change what it names; Parley tries again"
    )


def first_in_line(namespace: str, name: str) -> str:
    """The message about an exclusive claim that is free, and for which another pod is ahead."""
    return (
        f"claim {namespace}/{name} is not shareable, and a pod of higher priority, or that has waited longer, "
        "gets it first: wait until that pod has ended, or use a template"
    )


def being_allocated(namespace: str, name: str, whom: str) -> str:
    """The message about a claim that is being allocated for another pod, which `whom` describes."""
    return f"claim {namespace}/{name} is being allocated for {whom}: wait until that is done"


def too_large(whose: str, size: int) -> str:
    """The message about parameters that don't fit into a mirror."""
    return f"parameters of {whose} have {size} bytes as JSON, at most {MAX_PARAMETERS_BYTES} fit: shorten them"


def class_not_found(class_name: str, whose: str) -> str:
    """The message about a missing class."""
    return f"{whose}: spec.resourceClassName={class_name!r} does not exist: create that ResourceClass"


def not_deallocated(whose: str, driver: str) -> str:
    """The message about a claim that an embedded driver fails to deallocate."""
    return f"{whose} is not free yet: driver {driver} failed in deallocate and is asked again"
