"""Claims that no container uses are named, and what a pod's owner does about them."""

from typing import Any

import pytest
from tests.unit.control.builders import a_holding, pod_manifest, read

from parley.api.builtin import Pod
from parley.api.models import ResourceClass
from parley.api.resources import PODS
from parley.control.claims import unused
from parley.control.claims.podclaims import PodClaim

USES = {"name": "main", "resources": {"claims": [{"name": "gpu", "request": "first"}]}}
IDLE = {"name": "idle", "image": "none"}


def pod(**spec: Any) -> Pod:
    return read(PODS, pod_manifest("p", claims=["gpu", "disk"], **spec))


def claims(node_part: str = "Required") -> list[PodClaim]:
    body = {"metadata": {"name": "some"}, "driverName": "device.parley.dev", "nodePart": node_part}
    class_ = ResourceClass.model_validate({"apiVersion": "parley.dev/v1alpha1", "kind": "ResourceClass", **body})
    return [PodClaim("gpu", "gpu", class_=class_), PodClaim("disk", "disk", class_=class_)]


@pytest.mark.parametrize(
    ("spec", "entries"),
    [
        ({}, ["gpu", "disk"]),
        ({"containers": [IDLE, USES]}, ["disk"]),
        ({"containers": [IDLE], "initContainers": [USES]}, ["disk"]),
        ({"containers": [{**IDLE, "resources": {"claims": [{"name": "gpu"}, {"name": "disk"}]}}]}, []),
    ],
)
def test_a_claim_is_used_if_any_container_names_it(spec: dict[str, Any], entries: list[str]) -> None:
    assert unused.unused(pod(**spec), claims()) == entries


def test_a_claim_without_a_part_on_the_node_has_nothing_to_hand_over() -> None:
    assert unused.unused(pod(), claims("None")) == []


@pytest.mark.parametrize(("node_part", "entries"), [(True, ["gpu"]), (False, [])])
def test_what_is_allocated_says_itself_whether_it_has_one(node_part: bool, entries: list[str]) -> None:
    assert unused.unused(pod(), [PodClaim("gpu", "gpu", holding=a_holding(node_part=node_part))]) == entries


def test_of_a_claim_whose_class_is_not_known_nothing_is_said() -> None:
    assert unused.unused(pod(), [PodClaim("gpu", "gpu")]) == []


def test_the_message_names_them_and_the_remedy() -> None:
    assert unused.message(["gpu"]) == (
        "no container uses claim gpu, so no container gets what it holds: recreate the pod with it in"
        " resources.claims of a container"
    )
    assert unused.message(["gpu", "disk"]).startswith(
        "no container uses claims gpu, disk, so no container gets what they hold: recreate the pod with them in"
    )
