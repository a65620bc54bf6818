"""A pod's entries in `spec.resourceClaims`: Kubernetes allows any number, Parley evaluates `MAX_ENTRIES`. Pure.

A pod with more is told so, and nothing is allocated for it. A scheduler may still reserve shared claims for it,
which has to be known when they are released: the names of all its claims are kept, in little memory.
"""

from collections.abc import Iterable, Sequence

from parley.api.builtin import Pod, PodResourceClaim, ShortenedPodSpec
from parley.sdk.checks import MAX_ENTRIES


def number_of(pod: Pod) -> int:
    """The number of the pod's entries."""
    spec = pod.spec
    return spec.entries if isinstance(spec, ShortenedPodSpec) and spec.entries else len(spec.resource_claims)


def has_too_many(pod: Pod) -> bool:
    """Whether the pod has more entries than are evaluated."""
    return number_of(pod) > MAX_ENTRIES


def evaluated(pod: Pod) -> Sequence[PodResourceClaim]:
    """The pod's first `MAX_ENTRIES` entries."""
    return pod.spec.resource_claims[:MAX_ENTRIES]


def claims_named(pod: Pod) -> Iterable[str]:
    """The names of all named claims in the pod's entries."""
    named = [entry.resource_claim_name for entry in pod.spec.resource_claims if entry.resource_claim_name]
    return named + pod.spec.more_claims.split() if isinstance(pod.spec, ShortenedPodSpec) else named


def names_more(pod: Pod, claim: str) -> bool:
    """Whether the claim is named in an entry that is not kept."""
    return isinstance(pod.spec, ShortenedPodSpec) and f"\n{claim}\n" in pod.spec.more_claims


def joined(names: Iterable[str]) -> str:
    """The names as `ShortenedPodSpec.more_claims` has them."""
    lines = "".join(f"{name}\n" for name in dict.fromkeys(names))
    return f"\n{lines}" if lines else ""
