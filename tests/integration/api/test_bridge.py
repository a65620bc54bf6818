"""The bridge on a real API server: what it adds to pods that ask for it, and that all others stay as they are."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from benchmarks.usage import Process, cpu_seconds
from tests.cluster.bridge import OPTED_IN, OTHER_RUN, Pod, bridge, still, tekton_pods
from tests.cluster.raw import RawServer, Refused, raw

from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

RUN = "a4c9ca2f-d397-463d-83be-94a22e79c6a4"
CLAIM = {"name": "parley-workspace", "resourceClaimName": f"src-{RUN}"}


class Bridged:
    """An API server with the bridge, and two namespaces, of which one has opted in."""

    def __init__(self, server: RawServer) -> None:
        self._server = server
        self._names = {mode: f"{mode}-{uuid.uuid4().hex[:8]}" for mode in ("opted", "plain")}
        for mode, name in self._names.items():
            labels = OPTED_IN if mode == "opted" else {"parley.dev/bridge": "disabled"}
            server.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})

    @property
    def opted(self) -> str:
        """The namespace that has."""
        return self._names["opted"]

    def admitted(self, pod: Pod, mode: str = "opted") -> Pod:
        """The pod as the API server would store it, but for what differs between any two. Raises Refused."""
        body = {**pod, "metadata": {**pod["metadata"], "namespace": self._names[mode]}}
        path = f"/api/v1/namespaces/{self._names[mode]}/pods?dryRun=All&fieldManager=test&fieldValidation=Strict"
        made: Pod = self._server.post(path, body)
        for name in ("namespace", "uid", "creationTimestamp"):
            del made["metadata"][name]
        for entry in made["metadata"]["managedFields"]:
            del entry["time"]
        return made

    def unchanged(self, pod: Pod) -> bool:
        """Whether the pod is admitted as it is without the bridge, in the same order."""
        return json.dumps(self.admitted(pod)) == json.dumps(self.admitted(pod, "plain"))


@pytest.fixture(scope="module")
def bridged(control_plane: Cluster) -> Iterator[Bridged]:
    """The bridge, in force."""
    it = Bridged(raw(control_plane))
    with bridge(control_plane, it.opted):
        yield it


def tekton(annotations: dict[str, str] | None = None, without: str = "") -> Pod:
    """The pod that asks, with other annotations and without one of its labels."""
    pod, _ = tekton_pods()
    labels = {key: value for key, value in pod["metadata"]["labels"].items() if key != without}
    given = pod["metadata"]["annotations"] if annotations is None else annotations
    return {**pod, "metadata": {**pod["metadata"], "labels": labels, "annotations": given}}


def plain(annotations: dict[str, str] | None = None, **spec: Any) -> Pod:
    """Any pod."""
    meta = {"name": "p", "annotations": annotations or {}}
    containers = [{"name": "main", "image": "none"}]
    return still({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}})


def with_claim(pod: Pod, entry: Pod, *containers: str) -> Pod:
    """The pod with one more entry, which these containers use besides what they have."""
    spec = pod["spec"]
    changed = {**spec, "resourceClaims": [*spec.get("resourceClaims", ()), entry]}
    for kind in ("containers", "initContainers"):
        if kind in spec:
            changed[kind] = [_using(c, entry["name"]) if c["name"] in containers else c for c in spec[kind]]
    return {**pod, "spec": changed}


def _using(container: Pod, entry: str) -> Pod:
    resources = container.get("resources", {})
    claims = [*resources.get("claims", ()), {"name": entry}]
    return {**container, "resources": {**resources, "claims": claims}}


def content(pod: Pod) -> Any:
    """All but whose field is whose."""
    return {**pod, "metadata": {k: v for k, v in pod["metadata"].items() if k != "managedFields"}}


def test_a_pod_of_tektons_that_asks_gets_the_run_s_claim_in_its_steps_and_nothing_else(bridged: Bridged) -> None:
    asking, _ = tekton_pods()
    assert content(bridged.admitted(asking)) == content(
        bridged.admitted(with_claim(asking, CLAIM, "step-s"), "plain")
    )


def test_it_keeps_what_containers_have_and_serves_sidecars(bridged: Bridged) -> None:
    asking = tekton()
    spec = asking["spec"]
    own = {"name": "gpu", "resourceClaimTemplateName": "one"}
    steps = [
        {
            "name": f"step-{n}",
            "image": "none",
            "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}, "claims": [{"name": "gpu"}]},
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
        }
        for n in range(3)
    ]
    sidecar = {"name": "sidecar-db", "image": "none", "restartPolicy": "Always"}
    inits = [*spec["initContainers"], sidecar]
    pod = {**asking, "spec": {**spec, "containers": steps, "initContainers": inits, "resourceClaims": [own]}}
    expected = with_claim(pod, CLAIM, "step-0", "step-1", "step-2", "sidecar-db")
    assert content(bridged.admitted(pod)) == content(bridged.admitted(expected, "plain"))


def of_another_run(**annotations: str) -> Pod:
    """A pod of a system that the chart's values name."""
    pod = plain(annotations, initContainers=[{"name": "fetch", "image": "none", "restartPolicy": "Always"}])
    return {**pod, "metadata": {**pod["metadata"], "labels": OTHER_RUN}}


def test_a_pod_of_another_system_gets_the_claim_of_its_run_by_its_labels(bridged: Bridged) -> None:
    asking = of_another_run(**{"parley.dev/workspace": "src"})
    own = {"name": "parley-workspace", "resourceClaimName": "src-7f3e"}
    expected = with_claim(asking, own, "main", "fetch")
    assert content(bridged.admitted(asking)) == content(bridged.admitted(expected, "plain"))


NOT_ASKING: dict[str, Callable[[], Pod]] = {
    "tekton, no annotation": lambda: tekton_pods()[1],
    "tekton, no annotations at all": lambda: tekton(annotations={}),
    "not of a PipelineRun": lambda: tekton(without="tekton.dev/pipelineRun"),
    "of another system's run": of_another_run,
    "any pod": plain,
    "like the prefix": lambda: plain({"claims.parley.dev": "a", "claims.parley.dev.x/gpu": "one"}),
    "of all annotations that fit": lambda: plain({f"a/{n:05}": "" for n in range(37_000)}),
}


@pytest.mark.parametrize("what", NOT_ASKING)
def test_a_pod_that_does_not_ask_is_unchanged_to_the_byte(bridged: Bridged, what: str) -> None:
    assert bridged.unchanged(NOT_ASKING[what]())


def test_a_pod_that_asks_in_a_namespace_that_has_not_opted_in_is_unchanged(bridged: Bridged) -> None:
    made = bridged.admitted(tekton({"parley.dev/workspace": "src", "claims.parley.dev/gpu": "one"}), "plain")
    assert "resourceClaims" not in made["spec"]
    assert all("claims" not in container["resources"] for container in made["spec"]["containers"])


def test_an_entry_that_is_there_is_left_alone(bridged: Bridged) -> None:
    mine = {"name": "parley-workspace", "resourceClaimName": "mine"}
    assert bridged.unchanged(with_claim(tekton(), mine))
    own = {"name": "gpu", "resourceClaimTemplateName": "mine"}
    assert bridged.unchanged(with_claim(plain({"claims.parley.dev/gpu": "other"}), own))


def test_any_pod_gets_a_claim_of_its_own_for_each_annotation(bridged: Bridged) -> None:
    inits = [{"name": "fetch", "image": "none"}, {"name": "proxy", "image": "none", "restartPolicy": "Always"}]
    containers = [{"name": "main", "image": "none"}, {"name": "other", "image": "none"}]
    pod = plain({"claims.parley.dev/gpu": "one", "about": "b"}, containers=containers, initContainers=inits)
    expected = with_claim(
        pod, {"name": "gpu", "resourceClaimTemplateName": "one"}, "main", "other", "fetch", "proxy"
    )
    assert content(bridged.admitted(pod)) == content(bridged.admitted(expected, "plain"))


def test_several_annotations_are_several_entries(bridged: Bridged) -> None:
    made = bridged.admitted(plain({"claims.parley.dev/gpu": "one", "claims.parley.dev/data": "set"}))["spec"]
    entries = {entry["name"]: entry["resourceClaimTemplateName"] for entry in made["resourceClaims"]}
    assert entries == {"gpu": "one", "data": "set"}
    (container,) = made["containers"]
    assert sorted(claim["name"] for claim in container["resources"]["claims"]) == ["data", "gpu"]


def test_both_ways_in_one_pod(bridged: Bridged) -> None:
    made = bridged.admitted(tekton({"parley.dev/workspace": "src", "claims.parley.dev/gpu": "one"}))["spec"]
    assert {entry["name"] for entry in made["resourceClaims"]} == {"parley-workspace", "gpu"}


def test_a_pod_of_hundreds_of_containers(bridged: Bridged) -> None:
    containers = [{"name": f"step-{n}", "image": "none"} for n in range(400)]
    asking = tekton({"parley.dev/workspace": "src", "claims.parley.dev/gpu": "one"})
    made = bridged.admitted({**asking, "spec": {**asking["spec"], "containers": containers}})["spec"]
    used = [sorted(claim["name"] for claim in c["resources"]["claims"]) for c in made["containers"]]
    assert used == [["gpu", "parley-workspace"]] * 400


def used_by(number: int) -> list[Pod]:
    return [{"name": f"step-{n}", "image": "none"} for n in range(number)]


ENTRIES = [{"name": f"e{n}", "resourceClaimName": "gpu"} for n in range(257)]
TOO_LARGE = {
    "tekton": lambda: {**tekton(), "spec": {**tekton()["spec"], "containers": used_by(1_025)}},
    "containers": lambda: plain({"claims.parley.dev/gpu": "one"}, containers=used_by(1_025)),
    "both": lambda: plain({f"claims.parley.dev/e{n}": "one" for n in range(33)}, containers=used_by(32)),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_pod_whose_containers_would_get_too_many_claims_is_refused(bridged: Bridged, what: str) -> None:
    with pytest.raises(Refused) as refused:
        bridged.admitted(TOO_LARGE[what]())
    assert "and the bridge adds them up to 1024 times: leave out annotations, or name the claims in" in str(
        refused.value
    )


@pytest.mark.parametrize("asking", [tekton(), plain({"claims.parley.dev/gpu": "one"})], ids=["tekton", "any"])
def test_a_pod_that_asks_and_has_more_claims_than_parley_serves_is_refused(bridged: Bridged, asking: Pod) -> None:
    with pytest.raises(Refused, match=r"has 257 entries in spec\.resourceClaims and asks for more by annotations"):
        bridged.admitted({**asking, "spec": {**asking["spec"], "resourceClaims": ENTRIES}})


LARGE: dict[str, Callable[[bool], Pod]] = {
    "containers": lambda asks: plain({"claims.parley.dev/gpu": "one"} if asks else {}, containers=used_by(1_024)),
    "both": lambda asks: plain(
        {f"claims.parley.dev/e{n}": "one" for n in range(32)} if asks else {}, containers=used_by(32)
    ),
    "too many of both": lambda asks: plain(
        {f"claims.parley.dev/e{n}": "one" for n in range(64)} if asks else {}, containers=used_by(64)
    ),
    "entries": lambda asks: plain({"claims.parley.dev/gpu": "one"} if asks else {}, resourceClaims=ENTRIES * 4),
}


@pytest.mark.parametrize("what", LARGE)
def test_the_largest_pods_that_ask_cost_little_more_than_those_that_do_not(
    control_plane: Cluster, bridged: Bridged, what: str
) -> None:
    """Of the API server's CPU time, whether they are refused in the end or not."""
    server = Process("kube-apiserver", str(control_plane.component("kube-apiserver").pid))

    def cost(asks: bool) -> float:
        before = cpu_seconds(server)
        for _ in range(3):
            with suppress(Refused):
                bridged.admitted(LARGE[what](asks))
        return (cpu_seconds(server) - before) / 3

    unasked = cost(asks=False)
    assert cost(asks=True) < 2 * unasked + 0.5


REFUSED = [
    (
        tekton({"parley.dev/workspace": "Src"}),
        f'spec.resourceClaims[0].resourceClaimName: Invalid value: "Src-{RUN}"',
    ),
    (tekton({"parley.dev/workspace": ""}), f'spec.resourceClaims[0].resourceClaimName: Invalid value: "-{RUN}"'),
    (tekton(without="tekton.dev/pipelineRunUID"), "tekton.bridge.parley.dev"),
    (plain({"claims.parley.dev/GPU": "one"}), 'spec.resourceClaims[0].name: Invalid value: "GPU"'),
    (plain({"claims.parley.dev/gpu": "a/b"}), 'resourceClaimTemplateName: Invalid value: "a/b"'),
]


@pytest.mark.parametrize(("pod", "why"), REFUSED)
def test_a_pod_that_asks_and_cannot_have_it_is_refused(bridged: Bridged, pod: Pod, why: str) -> None:
    with pytest.raises(Refused) as refused:
        bridged.admitted(pod)
    assert why in str(refused.value)
