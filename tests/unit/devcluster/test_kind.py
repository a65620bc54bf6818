"""What kind and its nodes are told: files and command lines from values."""

import json
from pathlib import Path

import yaml

from parley_devcluster import kind, kind_image, kind_network, kind_parley
from parley_devcluster.kind_network import KindNode

DEVICES = Path(__file__).parents[3] / "examples" / "devices"
ONE = KindNode("parley-worker", "10.89.0.3", "10.244.1.0/24")
TWO = KindNode("parley-worker2", "10.89.0.4", "10.244.2.0/24")


def test_kinds_own_image_needs_nothing_but_leave_for_cgroup_v1() -> None:
    described = kind.configuration(["control-plane"], ours=False, restrict=False)

    assert described["nodes"] == [{"role": "control-plane"}]
    patches = [yaml.safe_load(patch) for patch in described["kubeadmConfigPatches"]]
    assert patches == [{"kind": "KubeletConfiguration", "failCgroupV1": False}]
    assert "networking" not in described


def test_the_image_that_is_made_here_brings_the_control_plane_and_no_network() -> None:
    described = kind.configuration(["control-plane", "worker"], ours=True, restrict=True)

    patches = {patch["kind"]: patch for patch in map(yaml.safe_load, described["kubeadmConfigPatches"])}
    assert patches["ClusterConfiguration"]["imageRepository"] == "parley.dev"
    assert described["networking"]["disableDefaultCNI"] is True
    assert "restrict_oom_score_adj = true" in described["containerdConfigPatches"][0]


def test_the_images_of_the_control_plane_are_named_as_kubeadm_asks_for_them() -> None:
    described = kind.configuration(["control-plane"], ours=True, restrict=False)
    patches = {patch["kind"]: patch for patch in map(yaml.safe_load, described["kubeadmConfigPatches"])}
    cluster = patches["ClusterConfiguration"]

    images = kind_image.control_plane_images("v1.37.0")

    assert images["kube-apiserver"] == "parley.dev/kube-apiserver:v1.37.0"
    assert images["etcd"] == f"parley.dev/etcd:{cluster['etcd']['local']['imageTag']}"
    assert images["coredns"] == f"parley.dev/coredns:{cluster['dns']['imageTag']}"


def test_the_node_image_is_used_only_with_the_version_that_it_was_made_for() -> None:
    assert kind_image.name("v1.37.0") != kind_image.name("v1.36.0")


def test_kind_gets_its_configuration_and_the_image_that_is_named() -> None:
    command = kind.create_command(Path("/bin/kind"), Path("/c/kubeconfig"), Path("/kind.yaml"), "node:v1.37.0")

    assert command == [
        *("/bin/kind", "create", "cluster", "--name", "parley", "--config", "/kind.yaml"),
        *("--kubeconfig", "/c/kubeconfig", "--image", "node:v1.37.0"),
    ]


def test_nodes_have_a_name_an_address_and_a_range() -> None:
    def item(name: str, spec: dict[str, str]) -> object:
        addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.89.0.3"}]
        return {"metadata": {"name": name}, "spec": spec, "status": {"addresses": addresses}}

    items = [item("parley-worker", {"podCIDR": "10.244.1.0/24"}), item("new", {})]

    assert kind_network.nodes(json.dumps({"items": items})) == [ONE]


def test_a_node_has_a_route_to_every_other_one_and_hides_what_leaves_the_cluster() -> None:
    route, masquerade, written = kind_network.commands(ONE, [ONE, TWO])

    assert route == "ip route replace 10.244.2.0/24 via 10.89.0.4"
    assert masquerade.endswith("-A POSTROUTING -s 10.244.1.0/24 ! -d 10.244.0.0/16 -j MASQUERADE")
    ipam = json.loads(written.split("'")[1])["plugins"][0]["ipam"]
    assert ipam["ranges"] == [[{"subnet": "10.244.1.0/24"}]]


def test_each_worker_is_a_pool_of_the_chart_with_devices_of_its_own() -> None:
    values = kind_parley.values(
        {"parley-worker": DEVICES / "node-1.yaml", "parley-worker2": DEVICES / "node-2.yaml"}
    )

    first, second = values["nodePlugin"]["pools"]
    assert first["nodeSelector"] == {"kubernetes.io/hostname": "parley-worker"}
    assert len(first["configuration"]["devices"]) == 2
    assert len(second["configuration"]["devices"]) == 3
