"""What is wrong with a claim or template, in words that name it and the remedy. Pure."""

from parley.control.mirror import MAX_PARAMETERS_BYTES


def name_taken(kind: str, namespace: str, name: str) -> str:
    """The sentence about a built-in object in the mirror's place."""
    return (
        f"a resource.k8s.io {kind} {namespace}/{name} exists that Parley did not make: "
        f"delete it, or give the parley.dev {kind} another name"
    )


def mirror_refused(kind: str, namespace: str, name: str, words: str) -> str:
    """The sentence about a mirror that the API server does not take."""
    return (
        f"the API server refused the resource.k8s.io {kind} that stands for {namespace}/{name}: {words}: "
        "change what it names; it is tried again"
    )


def stand_in_taken(namespace: str, name: str) -> str:
    """The sentence about a Parley claim in the stand-in's place."""
    return (
        f"a parley.dev ResourceClaim {namespace}/{name} exists that Parley did not make, and Parley needs the "
        "name for what the driver allocates: delete it"
    )


def too_large(whose: str, size: int) -> str:
    """The sentence about parameters that don't fit into a mirror."""
    return f"parameters of {whose} have {size} bytes as JSON, at most {MAX_PARAMETERS_BYTES} fit: shorten them"


def class_not_found(class_name: str, claim: str) -> str:
    """The sentence about a missing class."""
    return f"claim {claim}: spec.resourceClassName={class_name!r} does not exist: create that ResourceClass"
