"""Which claim was generated for a pod's entry."""

from collections.abc import Iterator

import msgspec
from tests.unit.control.builders import NAMESPACE, a_pod, generated_for

from parley.api.builtin import BuiltinClaim, Pod, PodResourceClaimStatus
from parley.control.caches.generated_claims import GeneratedClaims
from parley.kube.cache import Key


def naming(pod: Pod, claim: str) -> Pod:
    """The pod's status names the claim."""
    named = [PodResourceClaimStatus(name="licence", resource_claim_name=claim)]
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, resource_claim_statuses=named))


def test_a_claim_is_found_by_its_pod_and_entry_until_it_is_gone() -> None:
    pod = a_pod()
    claim = generated_for(pod)
    generated = GeneratedClaims(lambda _key: None)
    assert generated.of_entry(pod, "licence") is None
    generated.changed(None, claim)
    assert generated.of_entry(pod, "licence") is claim
    assert generated.of_entry(pod, "other") is None
    assert generated.of_entry(a_pod("other"), "licence") is None
    generated.changed(claim, None)
    assert generated.of_entry(pod, "licence") is None


def test_the_claim_that_the_pods_status_names_comes_first_if_the_pod_owns_it() -> None:
    pod = a_pod()
    made, named, foreign = generated_for(pod), generated_for(pod), generated_for(a_pod("other"))
    known: dict[Key, BuiltinClaim] = {(NAMESPACE, "named"): named, (NAMESPACE, "foreign"): foreign}
    generated = GeneratedClaims(known.get)
    generated.changed(None, made)
    assert generated.of_entry(naming(pod, "named"), "licence") is named
    assert generated.of_entry(naming(pod, "foreign"), "licence") is made
    assert generated.of_entry(naming(pod, "unknown"), "licence") is made


class Counted(list[PodResourceClaimStatus]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[PodResourceClaimStatus]:
        self.times += 1
        return super().__iter__()


def test_a_pods_status_is_gone_through_once_for_all_of_its_entries() -> None:
    statuses = Counted(PodResourceClaimStatus(name=f"e{i}", resource_claim_name=f"c{i}") for i in range(256))
    pod = a_pod()
    pod = msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, resource_claim_statuses=statuses)
    )
    claims = {(NAMESPACE, f"c{i}"): generated_for(pod) for i in range(256)}
    generated = GeneratedClaims(claims.get)
    statuses.times = 0

    assert [generated.of_entry(pod, f"e{i}") for i in range(256)] == [*claims.values()]
    assert statuses.times == 1
