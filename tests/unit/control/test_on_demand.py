"""Which template makes a claim that a pod names and that does not exist, what the claim looks like, and what is
wrong with the pod otherwise."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.effort import calls
from tests.unit.control.builders import NAMESPACE, World, metadata, played, pod_manifest, read

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import ResourceClaimTemplate
from parley.api.resources import BUILTIN_CLAIMS, PODS, TEMPLATES
from parley.control.claims.gathering import gather
from parley.control.claims.on_demand import OnDemand, on_demand, shared_topic

RUN = "example.com/run"
UID = "example.com/run-uid"
OWNER = {"apiVersion": "example.com/v1", "kind": "Run", "uidLabel": UID}


def a_template(name: str = "src", shared: Any = None, **meta: Any) -> ResourceClaimTemplate:
    spec = {"metadata": meta, "spec": {"resourceClassName": "workspace", "parameters": {"size": "1Gi"}}}
    body = {"metadata": metadata(name), "spec": {**spec, "sharedBy": shared or {"podLabel": RUN}}}
    return read(TEMPLATES, body)


def labelled(**labels: str) -> Pod:
    """Pod team/p; `run` and `uid` are its labels."""
    keys = {"run": RUN, "uid": UID}
    meta = metadata("p", labels={keys[short]: value for short, value in labels.items()})
    return read(PODS, {**pod_manifest("p"), "metadata": meta})


def demanded(pod: Pod, claim: str, *templates: ResourceClaimTemplate) -> OnDemand | None:
    known = {(NAMESPACE, template.metadata.name): template for template in templates}
    return on_demand(known.get, pod, claim)


def test_the_claim_has_the_templates_spec_and_says_what_made_it() -> None:
    found = demanded(labelled(run="7"), "src-7", a_template(labels={"team": "a"}, annotations={"about": "b"}))
    assert found is not None
    assert (found.template, found.fault) == ("src", "")
    assert found.body() == {
        "apiVersion": "parley.dev/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "src-7",
            "namespace": NAMESPACE,
            "labels": {"team": "a"},
            "annotations": {"about": "b", "parley.dev/made-from": "src"},
            "finalizers": ["parley.dev/in-use"],
            "ownerReferences": [],
        },
        "spec": {"resourceClassName": "workspace", "parameters": {"size": "1Gi"}},
    }


@pytest.mark.parametrize("owner", [{**OWNER, "nameLabel": RUN}, OWNER], ids=["named", "by the pod's label"])
def test_the_claim_goes_with_the_object_that_the_pod_s_labels_name(owner: dict[str, str]) -> None:
    found = demanded(labelled(run="7", uid="u-7"), "src-7", a_template(shared={"podLabel": RUN, "owner": owner}))
    assert found is not None
    assert found.body()["metadata"]["ownerReferences"] == [
        {"apiVersion": "example.com/v1", "kind": "Run", "name": "7", "uid": "u-7"}
    ]


def test_marks_of_parley_and_of_drivers_are_not_taken_over_from_a_template() -> None:
    marks = {
        "parley.dev/generated-for": "x",
        "parley.dev/mirror": "named",
        "disks.example.com/allocating-on": "node-1",
        "example.com/mine": "y",
    }
    found = demanded(labelled(run="7"), "src-7", a_template(labels=marks, annotations=marks))
    assert found is not None
    assert found.body()["metadata"]["labels"] == {"example.com/mine": "y"}
    assert found.body()["metadata"]["annotations"] == {"example.com/mine": "y", "parley.dev/made-from": "src"}


def test_of_several_templates_the_one_whose_label_fits_makes_it() -> None:
    templates = a_template("a"), a_template("a-b", {"podLabel": UID})
    assert demanded(labelled(run="b-c"), "a-b-c", *templates).template == "a"  # type: ignore[union-attr]
    assert demanded(labelled(uid="c"), "a-b-c", *templates).template == "a-b"  # type: ignore[union-attr]
    assert demanded(labelled(run="b-c", uid="c"), "a-b-c", *templates).template == "a-b"  # type: ignore[union-attr]


def test_other_names_and_templates_for_single_pods_make_nothing() -> None:
    plain = read(TEMPLATES, {"metadata": metadata("one"), "spec": {"spec": {"resourceClassName": "gpu"}}})
    for name in ("one-7", "src", "srcs-7", "other-7"):
        assert demanded(labelled(run="7"), name, plain, a_template()) is None


SHARED = {"podLabel": RUN, "owner": {**OWNER, "nameLabel": RUN}}
FAULTS = [
    (
        labelled(),
        "src-7",
        "claim team/src-7 does not exist, and template team/src creates claims by the label 'example.com/run' "
        "(spec.sharedBy.podLabel), which pod team/p does not have: set it in metadata.labels, or create the claim",
    ),
    (
        labelled(run="8", uid="u"),
        "src-7",
        "claim team/src-7 does not exist, and template team/src creates 'src-8' for pod team/p, whose label "
        "'example.com/run' has the value '8': name that claim, or create this one",
    ),
    (
        labelled(run="Build_7", uid="u"),
        "src-build-7",
        "claim team/src-build-7 does not exist, and template team/src cannot create one for pod team/p, whose "
        "label 'example.com/run' has the value 'Build_7': a claim can't be named 'src-Build_7'. Names have up to "
        "253 lower-case letters, digits, '-' and '.': choose a label with such values for spec.sharedBy.podLabel "
        "of the template",
    ),
    (
        labelled(run="7"),
        "src-7",
        "claim team/src-7 does not exist, and template team/src creates it for the Run in the label "
        "'example.com/run-uid' (spec.sharedBy.owner.uidLabel), which pod team/p does not have: set it in "
        "metadata.labels, or create the claim",
    ),
]


@pytest.mark.parametrize(("pod", "claim", "fault"), FAULTS)
def test_a_pod_that_does_not_fit_is_told_what_to_change(pod: Pod, claim: str, fault: str) -> None:
    found = demanded(pod, claim, a_template(shared=SHARED))
    assert found is not None
    assert (found.template, found.fault) == ("src", fault)


def test_a_name_that_would_be_too_long_is_a_fault() -> None:
    long = "a" * 200
    found = demanded(labelled(run="b" * 60), f"{long}-b", a_template(long))
    assert found is not None
    assert f"a claim can't be named '{long}-{'b' * 60}'. Names have up to 253 " in found.fault


values = st.from_regex(r"\A[a-z0-9.]?([-a-z0-9.A-Z_]{0,8}[a-zA-Z0-9])?\Z")


@given(name=st.from_regex(r"\A[a-z]([-a-z]{0,4}[a-z])?\Z"), value=values, end=values)
def test_a_claim_is_made_only_if_its_name_ends_with_the_pods_value(name: str, value: str, end: str) -> None:
    found = demanded(labelled(run=value), f"{name}-{end}", a_template(name))
    assert found is not None
    assert found.fault or (value == end and found.body()["metadata"]["name"] == f"{name}-{end}")
    valid = "--" not in end and ".." not in end and "-." not in end and ".-" not in end and end[:1] not in "-."
    assert not found.fault or value != end or not end or end != end.lower() or "_" in end or not valid


def test_what_a_pod_costs_does_not_grow_with_its_claims_times_the_templates_that_come_into_question() -> None:
    """Each dash of a name may end a template's name, each template may go by a label of its own, and their
    parameters may be large: at the API's limits such a pod took seconds."""
    words = ["a"] * 126
    claim, large = "-".join(words), {f"k{n}": n for n in range(600)}
    known: dict[tuple[str, str], ResourceClaimTemplate] = {}
    labels: dict[str, str] = {}
    for length in range(1, len(words)):
        name, value = "-".join(words[:length]), "-".join(words[length:])
        label = f"example.com/l{length}"
        template = {"spec": {"resourceClassName": "gpu", "parameters": large}, "sharedBy": {"podLabel": label}}
        known[NAMESPACE, name] = read(TEMPLATES, {"metadata": metadata(name), "spec": template})
        labels |= {label: value} if len(value) <= 63 else {}
    fitting, strange = (
        read(PODS, {**pod_manifest("p"), "metadata": metadata("p", labels=given)}) for given in (labels, {})
    )
    assert on_demand(known.get, fitting, claim) is not None
    assert calls(lambda: [on_demand(known.get, fitting, claim) for _ in range(256)]) < 10_000
    assert calls(lambda: [on_demand(known.get, strange, claim) for _ in range(256)]) < 300_000


async def _gathered(world: World, claim: str, **labels: str) -> Any:
    manifest = pod_manifest("p", claims=[claim])
    manifest["metadata"]["labels"] = labels
    pod = await world.put(PODS, manifest)
    cached = world.cluster.pod((NAMESPACE, "p"))
    assert cached is not None
    assert cached.metadata.uid == pod.metadata.uid
    return gather(world.state, cached)


def test_a_pod_finds_that_its_claim_is_about_to_be_made() -> None:
    async def story(world: World) -> None:
        shared = {"spec": {"resourceClassName": "licence"}, "sharedBy": {"podLabel": "run"}}
        await world.put(TEMPLATES, {"metadata": {"name": "src"}, "spec": shared})
        (claim,) = await _gathered(world, "src-7", run="7")
        assert claim.to_create.body()["metadata"]["name"] == "src-7"
        assert (claim.problem.code, claim.problem.transient) == (reasons.CLAIM_NOT_FOUND, True)
        assert claim.problem.message == "claim team/src-7 is being created from template team/src"
        assert claim.problem.topics == (("claim", NAMESPACE, "src-7"), shared_topic(NAMESPACE))

    played(story)


def test_a_pod_whose_labels_do_not_fit_has_a_problem_of_its_own() -> None:
    async def story(world: World) -> None:
        shared = {"spec": {"resourceClassName": "licence"}, "sharedBy": {"podLabel": "run"}}
        await world.put(TEMPLATES, {"metadata": {"name": "src"}, "spec": shared})
        (claim,) = await _gathered(world, "src-7", run="8")
        assert (claim.problem.code, claim.problem.transient) == (reasons.CLAIM_NOT_MADE, False)
        assert claim.to_create is None

    played(story)


def test_a_claim_of_another_dra_driver_has_its_name_for_itself() -> None:
    async def story(world: World) -> None:
        shared = {"spec": {"resourceClassName": "licence"}, "sharedBy": {"podLabel": "run"}}
        await world.put(TEMPLATES, {"metadata": {"name": "src"}, "spec": shared})
        others = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
        await world.put(BUILTIN_CLAIMS, {"metadata": {"name": "src-7"}, "spec": others})
        assert await _gathered(world, "src-7", run="7") == ()

    played(story)
