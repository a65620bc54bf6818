"""What a pod counts for while it is resized: as k8s.io/component-helpers computes it for the scheduler."""

from typing import Any

import msgspec
import pytest

from parley.api.builtin import Pod
from parley.control.caches.kept import pod as kept
from parley.negotiation.requests import is_resized, requested

INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


def pod(spec: str, allocated: str | None, actuated: str | None, **more: Any) -> Pod:
    """A pod of one container with these CPUs; `more` is its status."""
    status: dict[str, Any] = {"name": "main"}
    if allocated is not None:
        status["allocatedResources"] = {"cpu": allocated}
    if actuated is not None:
        status["resources"] = {"requests": {"cpu": actuated}}
    body = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": spec}}}],
            "overhead": {"cpu": "100m"},
        },
        "status": {"containerStatuses": [status], **more},
    }
    return msgspec.convert(body, Pod)


@pytest.mark.parametrize(
    ("spec", "allocated", "actuated", "more", "counts"),
    [
        ("2", "2", "2", {}, 2100),
        ("500m", "2", "2", {}, 2100),
        ("500m", "500m", "2", {}, 2100),
        ("500m", "500m", "500m", {}, 600),
        ("4", "2", "2", {}, 4100),
        ("4", "2", "2", {"conditions": INFEASIBLE}, 2100),
        ("4", None, None, {}, 4100),
        ("4", "2", None, {}, 4100),
        ("1", "2", None, {}, 2100),
    ],
    ids=[
        "not resized",
        "shrinking",
        "admitted, not actuated",
        "shrunk",
        "growing",
        "can't grow",
        "no status yet",
        "no amounts yet, growing",
        "no amounts yet, shrinking",
    ],
)
def test_the_most_of_spec_allocated_and_actuated_counts(
    spec: str, allocated: str | None, actuated: str | None, more: dict[str, Any], counts: int
) -> None:
    found = pod(spec, allocated, actuated, **more)
    assert requested(found) == {"cpu": counts}
    assert requested(kept(found)) == {"cpu": counts}


def test_only_other_amounts_are_a_resize() -> None:
    assert not is_resized(pod("2", "2", "2"))
    assert not is_resized(pod("2", None, None))
    assert is_resized(pod("2", "1", "2"))
    assert is_resized(pod("2", "2", "1"))


def test_amounts_of_the_pod_itself_count_before_those_of_its_containers() -> None:
    body = {
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            "resources": {"requests": {"cpu": "2"}},
        },
        "status": {
            "containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "1"}}],
            "allocatedResources": {"cpu": "3"},
            "resources": {"requests": {"cpu": "3"}},
        },
    }
    assert requested(msgspec.convert(body, Pod)) == {"cpu": 3000}


def test_what_comes_to_zero_is_left_out() -> None:
    requests = {"cpu": "1", "x.y/none": "0"}
    body = {"spec": {"containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}]}}
    assert requested(msgspec.convert(body, Pod)) == {"cpu": 1000}


def test_a_sidecar_counts_with_what_it_has() -> None:
    sidecar = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    body = {
        "spec": {"containers": [{"name": "main"}], "initContainers": [sidecar]},
        "status": {"initContainerStatuses": [{"name": "side", "resources": {"requests": {"cpu": "3"}}}]},
    }
    assert requested(msgspec.convert(body, Pod)) == {"cpu": 3000}
