"""By what cached objects are found beside their names."""

import pytest
from tests.unit.control.builders import NAMESPACE, a_claim, a_class, a_pod

from parley.api.names import GENERATED_LABEL
from parley.control.caches.indexes import named_claims, owning_pods, parameters_of_claim, parameters_of_class
from parley.sdk.referenced import room_topic

SIZES = {"apiGroup": "", "kind": "ConfigMap", "name": "sizes"}


def test_a_pod_is_found_by_the_claims_that_it_names_and_not_by_its_templates() -> None:
    pod = a_pod(
        resourceClaims=[
            {"name": "mine", "resourceClaimName": "disk"},
            {"name": "made", "resourceClaimTemplateName": "one"},
        ]
    )

    assert [*named_claims(pod)] == [(NAMESPACE, "disk")]


@pytest.mark.parametrize(
    ("labels", "found"), [({}, []), ({GENERATED_LABEL: "gpu"}, [(NAMESPACE, "uid-p")])], ids=["named", "stand-in"]
)
def test_a_stand_in_is_found_by_its_pods_uid(labels: dict[str, str], found: list[tuple[str, str]]) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}

    assert [*owning_pods(a_claim(meta={"labels": labels, "ownerReferences": [owner]}))] == found


def test_a_claim_is_found_by_the_object_with_its_parameters_and_by_the_room_to_read_it() -> None:
    object_, room = parameters_of_claim(a_claim(parametersRef=SIZES))

    assert room == room_topic(NAMESPACE)
    assert object_ != room
    assert {NAMESPACE, "sizes"} <= {*object_}
    assert [*parameters_of_claim(a_claim())] == []


def test_a_class_is_found_by_an_object_in_the_namespace_that_it_names() -> None:
    object_, room = parameters_of_class(a_class(parametersRef={**SIZES, "namespace": "shared"}))

    assert {"shared", "sizes"} <= {*object_}
    assert room == room_topic("")
    assert [*parameters_of_class(a_class())] == []
