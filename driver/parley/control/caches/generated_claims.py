"""An index of generated claims by pod and entry, which has them before the pod's status names them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from parley.api.builtin import BuiltinClaim, Pod, PodResourceClaimStatus
from parley.api.names import POD_CLAIM_NAME_ANNOTATION
from parley.control.objects.mirror import owner_pod_uid
from parley.kube.cache import Key


class GeneratedClaims:
    """An index of built-in claims by the pod that owns them. `claim` looks one up by its key."""

    def __init__(self, claim: Callable[[Key], BuiltinClaim | None]) -> None:
        self._claim = claim
        self._names = _Names()
        self._by_pod: defaultdict[Key, dict[str, BuiltinClaim]] = defaultdict(dict)

    def of_entry(self, pod: Pod, entry: str) -> BuiltinClaim | None:
        """The claim that the pod's status names for the entry, or else the one whose annotation has the entry."""
        if name := self._names.of(pod).get(entry):
            claim = self._claim((pod.metadata.namespace, name))
            if claim is not None and owner_pod_uid(claim) == pod.metadata.uid:
                return claim
        return self._by_pod.get((pod.metadata.namespace, pod.metadata.uid), {}).get(entry)

    def of_pod(self, pod: Pod) -> Iterable[BuiltinClaim]:
        """All that were made for the pod."""
        return self._by_pod.get((pod.metadata.namespace, pod.metadata.uid), {}).values()

    def listed(self, pod: Pod, entry: str) -> str:
        """The name in the pod's status of the entry's claim, which may not exist; "" if there is none."""
        return self._names.of(pod).get(entry) or ""

    def changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        """Handle the event of a built-in claim."""
        for claim, present in ((old, False), (new, True)):
            entry = claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION) if claim else None
            if claim is None or entry is None or not (owner := owner_pod_uid(claim)):
                continue
            key = (claim.metadata.namespace, owner)
            claims = self._by_pod[key]
            if present:
                claims[entry] = claim
            elif claims.get(entry) is claim:
                del claims[entry]
            if not claims:
                del self._by_pod[key]


class _Names:
    """The claims that pods' statuses name for their entries. Remembers those of the last pod: the next question is
    often about another of its entries."""

    def __init__(self) -> None:
        self._statuses: Sequence[PodResourceClaimStatus] = ()
        self._names: Mapping[str, str | None] = {}

    def of(self, pod: Pod) -> Mapping[str, str | None]:
        statuses = pod.status.resource_claim_statuses
        if statuses is not self._statuses:
            self._statuses = statuses
            self._names = {status.name: status.resource_claim_name for status in statuses}
        return self._names
