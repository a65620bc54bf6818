"""What pods request that name a claim and wait for a node is summed up as they come and go."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.containers import requesting
from tests.unit.control.builders import NAMESPACE, metadata, pod_manifest, read

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.control.caches.awaited import AwaitedAmounts
from parley.control.caches.indexes import awaiting_node
from parley.control.caches.usage import Usage
from parley.kube.cache import Cache, Key
from parley.negotiation.requests import requested

CLAIMS = ("a", "b", "c")
NAMES = ("cpu", "pods")


class Pods:
    """Pods as the cache has them, and what they count for."""

    def __init__(self) -> None:
        self.cache: Cache[Pod] = Cache()
        self.cache.index("awaited claim", awaiting_node)
        self.awaited = AwaitedAmounts(self.of, lambda uid: self.usage.share(uid) is not None)
        self.usage = Usage(counted=self.awaited.counted)

    def of(self, claim: Key) -> tuple[Pod, ...]:
        return self.cache.by_index("awaited claim", claim)

    def put(self, name: str, pod: Pod | None) -> None:
        key = (NAMESPACE, name)
        old = self.cache.get(key)
        if pod is not None:
            self.cache.put(key, pod)
        elif old is not None:
            self.cache.remove(key)
        self.awaited.pod_changed(old, pod)
        self.usage.pod_changed(old, pod)

    def assume(self, name: str) -> None:
        if (pod := self.cache.get((NAMESPACE, name))) is not None and not pod.spec.node_name:
            self.usage.assume(pod, "node-1")

    def no_more(self, name: str) -> None:
        if (pod := self.cache.get((NAMESPACE, name))) is not None:
            self.usage.remove(pod.metadata.uid)

    def expected(self, claim: str, name: str) -> int:
        """By a look at each of the pods."""
        waiting = [pod for pod in self.of((NAMESPACE, claim)) if self.usage.share(pod.metadata.uid) is None]
        return sum(1000 if name == "pods" else dict(requested(pod)).get(name, 0) for pod in waiting)


def a_pod(name: str, claims: list[str], cpu: int, **spec: Any) -> Pod:
    manifest = pod_manifest(name, claims=claims, **{**spec, "containers": requesting(cpu=f"{cpu}m")})
    return read(PODS, {**manifest, "metadata": metadata(name), "status": {"phase": "Pending"}})


_NAMES = st.sampled_from(["p", "q", "r"])
_COMES = st.tuples(
    st.just("put"), _NAMES, st.lists(st.sampled_from(CLAIMS), max_size=3), st.integers(1, 9), st.booleans()
)
_ELSE = st.tuples(st.sampled_from(["goes", "assumed", "no more"]), _NAMES)
_ASKED = st.tuples(st.just("asked"), st.sampled_from(CLAIMS), st.sets(st.sampled_from(NAMES), min_size=1))


@given(st.lists(st.one_of(_COMES, _ELSE, _ASKED), max_size=30))
def test_the_sums_are_those_of_a_look_at_each_pod(steps: list[tuple[Any, ...]]) -> None:
    pods = Pods()
    for step in steps:
        match step:
            case ("put", name, claims, cpu, bound):
                pods.put(name, a_pod(name, claims, cpu, **({"nodeName": "node-1"} if bound else {})))
            case ("goes", name):
                pods.put(name, None)
            case ("assumed", name):
                pods.assume(name)
            case ("no more", name):
                pods.no_more(name)
            case (_, claim, names):
                found = pods.awaited.of((NAMESPACE, claim), names)
                assert found == {name: pods.expected(claim, name) for name in names}
    for claim in CLAIMS:
        found = pods.awaited.of((NAMESPACE, claim), NAMES)
        assert found == {name: pods.expected(claim, name) for name in NAMES}


def test_nothing_is_remembered_of_claims_that_no_pod_names_any_more() -> None:
    pods = Pods()
    pods.put("p", a_pod("p", ["a", "b"], 1))
    assert pods.awaited.of((NAMESPACE, "a"), ["cpu"]) == {"cpu": 1}
    pods.put("p", None)
    assert not pods.awaited._sums
    assert not pods.awaited._requests
    assert not pods.awaited._summed
