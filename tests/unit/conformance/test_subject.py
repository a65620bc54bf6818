"""What is checked, as manifests say it: which class, which parameters, which nodes."""

from pathlib import Path

import pytest
import yaml

from parley.api.resources import NODES, RESOURCE_SLICES
from parley.conformance.subject import NODE_NAMES, BadSubject, Subject
from parley.simulate.manifests import read_dump

CLASS = {
    "apiVersion": "parley.dev/v1alpha1",
    "kind": "ResourceClass",
    "metadata": {"name": "seats"},
    "driverName": "seats.example.com",
    "parameters": {"seats": 2},
    "limits": [{"claims": 1}],
}
CLAIM = {
    "apiVersion": "parley.dev/v1alpha1",
    "kind": "ResourceClaim",
    "metadata": {"name": "one"},
    "spec": {"resourceClassName": "seats", "parameters": {"seats": 1}},
}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}, "status": {"allocatable": {"cpu": "1"}}}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "mine"},
    "spec": {
        "driver": "seats.example.com",
        "nodeName": "mine",
        "pool": {"name": "mine", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "room"}],
    },
}


def subject(folder: Path, *documents: object) -> Subject:
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return Subject.of(read_dump([path])[0])


def test_class_and_claim_are_taken_without_names_and_limits(tmp_path: Path) -> None:
    found = subject(tmp_path, CLASS, CLAIM)

    assert found.driver == "seats.example.com"
    assert {"driverName", "parameters"} <= found.class_body.keys()
    assert not {"metadata", "limits"} & found.class_body.keys()
    assert found.parameters == {"seats": 1}


def test_in_memory_there_are_nodes_of_its_own_where_none_are_given(tmp_path: Path) -> None:
    assert subject(tmp_path, CLASS, CLAIM).in_memory().nodes == NODE_NAMES
    given = subject(tmp_path, CLASS, CLAIM, NODE, SLICE).in_memory()
    assert given.nodes == ("mine",)
    assert [manifest.resource for manifest in given.others] == [NODES, RESOURCE_SLICES]


def test_on_a_cluster_its_nodes_are_asked_about_and_none_is_made(tmp_path: Path) -> None:
    found = subject(tmp_path, CLASS, CLAIM).on_cluster(["a", "b", "c", "d", "e"])
    assert (found.nodes, found.others) == (("a", "b", "c", "d"), ())

    given = subject(tmp_path, CLASS, CLAIM, NODE, SLICE).on_cluster(["other", "mine"])
    assert given.nodes == ("mine",)
    assert [manifest.resource for manifest in given.others] == [RESOURCE_SLICES]


def test_nodes_that_a_cluster_has_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSubject, match="the cluster has no node 'mine': leave the nodes out of the files"):
        subject(tmp_path, CLASS, CLAIM, NODE).on_cluster(["other"])
    with pytest.raises(BadSubject, match="the cluster has no nodes"):
        subject(tmp_path, CLASS, CLAIM).on_cluster([])
