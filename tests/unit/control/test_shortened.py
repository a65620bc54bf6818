"""Of very large objects little is kept, and what is decided by them comes out the same."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from tests.support.effort import cpu_seconds
from tests.unit.control.builders import NAMESPACE, World, a_pod, played

from parley.api.builtin import Pod
from parley.api.large_objects import MAX_LABELS
from parley.api.meta import MAX_COMPARED
from parley.api.models import ResourceClaim
from parley.api.names import FINALIZER, GENERATED_LABEL, RESERVATION_GATE, driver_finalizer
from parley.api.owners import MAX_OWNERS
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS, TEMPLATES
from parley.control.caches import kept
from parley.control.caches.shortened import MAX_FINALIZERS
from parley.control.objects.standin import owner_uid
from parley.negotiation.fit import needs_of
from parley.negotiation.requests import MAX_RESOURCES, requested
from parley.scheduler.candidates import CandidateNodes
from parley.sdk.immediate import may_have_begun

CLAIM = [{"name": "c", "resourceClaimName": "c"}]
META = {"name": "evil", "namespace": NAMESPACE, "uid": "u", "resourceVersion": "1"}


def pod(*, labels: dict[str, str] | None = None, statuses: object = (), **spec: Any) -> bytes:
    whole = {"containers": [{"name": "main", "image": "none"}], "resourceClaims": CLAIM, **spec}
    status = {"resourceClaimStatuses": statuses}
    return orjson.dumps({"metadata": {**META, "labels": labels or {}}, "spec": whole, "status": status})


def container(number: int, **resources: Any) -> dict[str, Any]:
    return {"name": f"c{number}", "image": "none", "resources": resources}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def named(node: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


def owners(number: int, *, controller: int = -1) -> list[dict[str, Any]]:
    refers = {"apiVersion": "v1", "kind": "Pod", "name": "a"}
    return [{**refers, "uid": f"uid-{i}", "controller": i == controller} for i in range(number)]


def claim(spec: object, **meta: Any) -> bytes:
    return orjson.dumps({"metadata": {**META, **meta}, "spec": spec})


def kept_bytes(decode: Callable[[bytes], object], raw: bytes) -> int:
    """Without what decoders remember of the object that was decoded last."""
    tracemalloc.start()
    try:
        decode(raw)
        before = tracemalloc.get_traced_memory()[0]
        _left = decode(raw)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


HUGE_PAGES = {"memory": "1Gi"} | {f"hugepages-{i}Ki": f"{i}Ki" for i in range(1, 20_000)}
"""A pod may request pages of any size, each a resource of its own."""

LARGE_PODS = {
    "terms": pod(affinity=required(*(named(f"n{i}") for i in range(25_000)))),
    "gated": pod(
        affinity=required(*(named(f"n{i}") for i in range(25_000))),
        resourceClaims=[],
        schedulingGates=[{"name": RESERVATION_GATE}],
    ),
    "values": pod(
        affinity=required({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 90_000}]})
    ),
    "tolerations": pod(tolerations=[{"key": f"a{i}", "operator": "Exists"} for i in range(25_000)]),
    "selector": pod(nodeSelector={f"a{i}": "b" for i in range(50_000)}),
    "volumes": pod(
        volumes=[{"name": f"a{i}", "persistentVolumeClaim": {"claimName": f"b{i}"}} for i in range(20_000)]
    ),
    "labels": pod(labels={f"a{i}": "b" for i in range(50_000)}),
    "named claims": pod(resourceClaims=[{"name": f"e{i}", "resourceClaimName": f"c{i}"} for i in range(12_000)]),
    "generated claims": pod(
        statuses=[{"name": f"e{i}", "resourceClaimName": f"p-e{i}"} for i in range(12_000)],
        resourceClaims=[{"name": f"e{i}", "resourceClaimTemplateName": "t"} for i in range(12_000)],
    ),
    "containers": pod(containers=[container(i) for i in range(20_000)]),
    "init containers": pod(initContainers=[container(i, requests={"cpu": "1"}) for i in range(20_000)]),
    "requests": pod(containers=[container(i, requests={"cpu": "1m", "memory": i}) for i in range(20_000)]),
    "resources": pod(
        containers=[container(i, requests={f"a/{i}": 1}, limits={f"a/{i}": 1}) for i in range(14_000)]
    ),
    "resources of one container": pod(containers=[container(0, limits={f"a/{i}": 1 for i in range(60_000)})]),
    "no resources": pod(containers=[container(0, requests={f"a/{i}": 0 for i in range(60_000)})]),
    "resources of the pod": pod(resources={"requests": HUGE_PAGES, "limits": HUGE_PAGES}),
    "quantities": pod(containers=[container(0, limits={f"a/{i}": f"{i}00{i}" for i in range(1, 45_000)})]),
    "uses": pod(containers=[container(i, claims=[{"name": "c"}]) for i in range(20_000)]),
    "uses of one container": pod(containers=[container(0, claims=[{"name": "c"}] * 60_000)]),
    "counted": pod(
        resourceClaims=[],
        nodeName="n1",
        containers=[container(i, requests={"cpu": "1m", f"a/{i}": 1}) for i in range(14_000)],
    ),
    "gates": pod(schedulingGates=[{"name": f"a/{i}"} for i in range(50_000)]),
}


@pytest.mark.parametrize("raw", LARGE_PODS.values(), ids=LARGE_PODS)
def test_what_is_kept_of_a_large_pod_is_bounded(raw: bytes) -> None:
    assert kept_bytes(PODS.read_through(kept.pod).decode, raw) < 150_000


@pytest.mark.parametrize("raw", LARGE_PODS.values(), ids=LARGE_PODS)
def test_a_large_pod_needs_the_same_of_a_node_as_before(raw: bytes) -> None:
    whole = PODS.decode(raw)
    left = kept.pod(whole)

    if whole.spec.resource_claims:
        assert needs_of(left) == needs_of(whole)
    assert bool(left.spec.scheduling_gates) is bool(whole.spec.scheduling_gates)


@pytest.mark.parametrize("raw", LARGE_PODS.values(), ids=LARGE_PODS)
def test_what_a_large_pod_needs_is_known_soon(raw: bytes) -> None:
    whole = PODS.decode(raw)

    assert cpu_seconds(lambda: needs_of(kept.pod(whole))) < 0.6


@pytest.mark.parametrize("seen", [False, True])
def test_of_very_many_containers_it_is_known_what_they_request_and_use(seen: bool) -> None:
    names = [{"name": "main"}, {"name": "spare"}]
    made = [container(i, requests={"cpu": "1m", "a/one": 1}, claims=names[:1]) for i in range(20_000)]
    claims = [{"name": name, "resourceClaimName": name} for name in ("main", "spare")]
    whole = PODS.decode(pod(containers=made, resourceClaims=claims))

    left = kept.pod(whole, seen=seen)

    assert requested(left) == requested(whole) == {"cpu": 20_000, "a/one": 20_000_000}
    assert [used.name for one in left.spec.containers for used in one.resources.claims] == ["main"]
    assert {one.image for one in left.spec.containers} == ({"none"} if seen else {""})
    assert not needs_of(left).excess


@pytest.mark.parametrize("number", [MAX_RESOURCES, MAX_RESOURCES + 1])
def test_a_pod_that_requests_too_many_resources_is_not_considered(number: int) -> None:
    resources = {f"a/{i}": 1 for i in range(number - 1)} | {"memory": "1Gi"}
    left = kept.pod(PODS.decode(pod(containers=[container(0, requests=resources)])))

    excess = needs_of(left).excess

    if number == MAX_RESOURCES:
        assert excess == ""
    else:
        assert excess == (
            "is not considered: the pod requests more than 256 different resources, and Parley evaluates no more "
            "with a node"
        )
    assert requested(left)["memory"] == 1000 * 1024**3


def test_memory_is_counted_beside_very_many_sizes_of_pages() -> None:
    left = kept.pod(PODS.decode(pod(nodeName="n1", resources={"requests": HUGE_PAGES, "limits": HUGE_PAGES})))

    assert requested(left)["memory"] == 1000 * 1024**3


@pytest.mark.parametrize("place", [0, 40_000])
def test_a_pod_with_very_many_gates_may_be_a_reservation_pod(place: int) -> None:
    gates = [{"name": f"a/{i}"} for i in range(50_000)]
    gates[place] = {"name": RESERVATION_GATE}

    left = kept.pod(PODS.decode(pod(schedulingGates=gates)))

    assert any(gate.name == RESERVATION_GATE for gate in left.spec.scheduling_gates)


def test_a_pod_that_asks_for_too_much_is_not_like_one_that_asks_for_nothing() -> None:
    """Or it would stand in the other's line, and keep it waiting."""

    async def story(world: World) -> None:
        demanding = a_pod("p", claims=["c"], tolerations=[{"operator": "Exists"}] * (MAX_COMPARED + 1))
        modest = a_pod("q", claims=["c"])
        alike = [
            CandidateNodes(world.state, kept.pod(one), (), None).equivalence_key for one in (demanding, modest)
        ]
        assert alike[0] != alike[1]

    played(story)


SPECS: dict[str, Any] = {
    "claim": (CLAIMS.read_through(kept.claim), {"resourceClassName": "x"}),
    "template": (TEMPLATES.read_through(kept.template), {"spec": {"resourceClassName": "x"}}),
    "mirror": (BUILTIN_CLAIMS.read_through(kept.mirror), {}),
}
LARGE: dict[str, dict[str, Any]] = {
    "owners": {"ownerReferences": owners(15_000)},
    "fewer owners": {"ownerReferences": owners(1_500)},
    "labels": {"labels": {f"a{i}": "b" for i in range(50_000)}},
    "annotations": {"annotations": {f"a{i}": "" for i in range(20_000)}},
    "finalizers": {"finalizers": [f"a/{i}" for i in range(50_000)]},
}


@pytest.mark.parametrize("meta", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize(("read", "spec"), SPECS.values(), ids=SPECS)
def test_what_is_kept_of_a_large_claim_is_bounded(read: Any, spec: object, meta: dict[str, Any]) -> None:
    assert kept_bytes(read.decode, claim(spec, **meta)) < 100_000


MANAGED = [{"manager": "m", "operation": "Apply", "fieldsV1": {f"f:a{i}": {} for i in range(100_000)}}]


@pytest.mark.parametrize(("field", "decodable"), [("labels", True), ("labels", False), ("managedFields", True)])
def test_a_large_claim_is_read_soon(field: str, decodable: bool) -> None:
    """Whoever owns it may change it all the time, and everything else waits while it is read."""
    values = {"labels": {f"a{i}": "b" for i in range(90_000)}, "managedFields": MANAGED}
    raw = claim({"resourceClassName": "x", "parameters": {"text": "?"}}, **{field: values[field]})
    raw = raw if decodable else raw.replace(b"?", b"\\ud800")

    assert cpu_seconds(lambda: CLAIMS.read_through(kept.claim).decode(raw)) < 0.02


def read_claim(**meta: Any) -> ResourceClaim:
    return kept.claim(CLAIMS.decode(claim({"resourceClassName": "x"}, **meta)))


@pytest.mark.parametrize("number", [MAX_OWNERS + 1, 15_000])
def test_the_pod_of_a_stand_in_is_found_among_very_many_owners(number: int) -> None:
    found = read_claim(labels={GENERATED_LABEL: "gpu"}, ownerReferences=owners(number, controller=number - 1))

    assert owner_uid(found) == f"uid-{number - 1}"
    assert len(found.metadata.owner_references) == MAX_OWNERS


def test_a_stand_in_with_very_many_labels_is_one_still() -> None:
    for number in (MAX_LABELS, 50_000):
        labels = {f"a{i}": "b" for i in range(number)} | {GENERATED_LABEL: "gpu"}

        assert read_claim(labels=labels).metadata.labels[GENERATED_LABEL] == "gpu"


def test_a_claim_of_ordinary_size_is_kept_as_it_is() -> None:
    whole = CLAIMS.decode(claim({"resourceClassName": "x"}, labels={"a": "b"}, finalizers=["a/b"]))

    assert kept.claim(whole) is whole


def test_controllers_finalizer_is_found_among_very_many() -> None:
    names = [*(f"a/{i}" for i in range(MAX_FINALIZERS)), FINALIZER]

    assert FINALIZER in read_claim(finalizers=names).metadata.finalizers


def test_a_drivers_finalizer_is_found_among_very_many() -> None:
    names = [*(f"a/{i}" for i in range(MAX_FINALIZERS)), driver_finalizer("disks.example.com"), FINALIZER]

    assert may_have_begun(read_claim(finalizers=names))


def test_labels_by_which_a_claim_is_made_are_kept_of_a_pod_of_ordinary_size() -> None:
    labels = {f"a{i}": "b" for i in range(MAX_LABELS)}
    whole: Pod = PODS.decode(pod(labels=labels))

    assert kept.pod(whole).metadata.labels == labels
    more = msgspec.structs.replace(whole.metadata, labels=labels | {"z": "b"})
    assert len(kept.pod(msgspec.structs.replace(whole, metadata=more)).metadata.labels) == MAX_LABELS


def test_the_caches_of_claims_and_templates_keep_little() -> None:
    labels = {f"a{i}": "b" for i in range(MAX_LABELS + 1)}

    async def story(world: World) -> None:
        await world.put(CLAIMS, {"metadata": {"name": "c", "labels": labels}, "spec": {"resourceClassName": "x"}})
        template = {"metadata": {"name": "t", "labels": labels}, "spec": {"spec": {"resourceClassName": "x"}}}
        await world.put(TEMPLATES, template)
        found = world.cluster.claim((NAMESPACE, "c")), world.cluster.template((NAMESPACE, "t"))
        assert [len(one.metadata.labels) for one in found if one is not None] == [MAX_LABELS] * 2

    played(story)
