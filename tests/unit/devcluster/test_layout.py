"""From a layout follow all names, paths and command lines of a cluster."""

from __future__ import annotations

import json
import tarfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from parley_devcluster import control_plane, images, layout, node_files, state
from parley_devcluster.control_plane import Command
from parley_devcluster.layout import Layout, LayoutError, Node, NodeOptions, Ports
from parley_devcluster.processes import ProcessIdentity, boot_id
from parley_devcluster.state import ClusterState, StateError

DIRECTORY = Path("/tmp/c")


def a_node(name: str = "n1") -> Node:
    options = NodeOptions(name, {"disk": "fast"}, {"cpu": "500m"})
    return Node(options, DIRECTORY / name, layout.scope(DIRECTORY, name), "10.200.7", 21000, 21001)


def a_layout(*nodes: Node, directory: Path = DIRECTORY) -> Layout:
    return Layout(directory, "v1.37.0", Ports(1, 2, 3, 4, 5, 6), nodes)


def test_the_control_plane_starts_with_etcd_and_the_api_server() -> None:
    names = [command.name for command in control_plane.control_plane(a_layout())]

    assert names == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]


def test_the_api_server_authorises_nodes_and_roles_and_admits_pods_without_an_account() -> None:
    argv = control_plane.api_server(a_layout()).argv

    assert argv[0] == "/tmp/c/bin/kube-apiserver"
    assert "--authorization-mode=Node,RBAC" in argv
    assert "--enable-admission-plugins=NodeRestriction" in argv
    assert "--disable-admission-plugins=ServiceAccount" in argv


def test_everything_of_the_control_plane_listens_on_loopback_only() -> None:
    for command in control_plane.control_plane(a_layout()):
        listening = [flag for flag in command.argv if "--listen-" in flag or "--bind-address" in flag]
        assert listening
        assert all("127.0.0.1" in flag for flag in listening)


def test_etcd_answers_only_holders_of_a_certificate_of_its_own_authority() -> None:
    argv = control_plane.etcd(a_layout()).argv

    assert "--client-cert-auth=true" in argv
    assert "--trusted-ca-file=/tmp/c/pki/etcd/ca.crt" in argv
    assert "--peer-client-cert-auth=true" in argv


def test_pods_get_their_accounts_tokens_where_it_is_asked_for() -> None:
    off = "--disable-admission-plugins=ServiceAccount"
    assert off in control_plane.api_server(a_layout()).argv
    assert off not in control_plane.api_server(replace(a_layout(), service_accounts=True)).argv


def test_without_node_lifecycle_the_controllers_that_need_heartbeats_are_off() -> None:
    off = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"

    assert off not in control_plane.controller_manager(a_layout()).argv
    assert off in control_plane.controller_manager(replace(a_layout(), node_lifecycle=False)).argv


def test_the_callers_scheduler_configuration_replaces_keys_at_the_top() -> None:
    configuration = control_plane.scheduler_configuration(a_layout(), {"podMaxBackoffSeconds": 1})

    assert configuration["podMaxBackoffSeconds"] == 1
    assert configuration["clientConnection"] == {
        "kubeconfig": "/tmp/c/kubeconfigs/kube-scheduler",
        "qps": 5000,
        "burst": 5000,
    }


def test_the_kubelet_is_the_nodes_own_and_accepts_this_machines_cgroups() -> None:
    node = a_node()
    settings = node_files.kubelet_configuration(a_layout(node), node)

    assert settings["failCgroupV1"] is False
    assert settings["failSwapOn"] is False
    assert settings["cgroupDriver"] == "cgroupfs"
    assert settings["cgroupRoot"] == f"/{node.scope}"
    assert settings["podLogsDir"] == "/tmp/c/n1/pod-logs"
    assert settings["address"] == "10.200.7.1"
    assert settings["systemReserved"] == {"cpu": "500m"}
    assert "--node-labels=disk=fast" in node_files.kubelet(a_layout(node), node).argv


@pytest.mark.parametrize("restrict", [True, False])
def test_containerd_keeps_everything_in_the_nodes_folder(restrict: bool) -> None:
    settings = tomllib.loads(node_files.containerd_configuration(a_node(), restrict_oom_score=restrict))
    runtime = settings["plugins"]["io.containerd.cri.v1.runtime"]
    options = runtime["containerd"]["runtimes"]["runc"]["options"]

    assert settings["root"] == "/tmp/c/n1/containerd"
    assert settings["state"] == "/tmp/c/n1/run"
    assert settings["grpc"]["address"] == "/tmp/c/n1/run/containerd.sock"
    assert settings["plugins"]["io.containerd.shim.v1.manager"]["socket_dir"] == "/tmp/c/n1/s"
    assert options["Root"] == "/tmp/c/n1/run/runc"
    assert runtime["cdi_spec_dirs"] == ["/tmp/c/n1/cdi"]
    assert runtime["restrict_oom_score_adj"] is restrict


def test_a_nodes_network_is_its_own_bridge_and_subnet() -> None:
    node = a_node()
    (bridge,) = node_files.network_configuration(node)["plugins"]

    assert bridge["bridge"] == node.scope
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.200.7.0/24", "rangeStart": "10.200.7.2"}]]


def test_where_a_plugin_author_finds_the_nodes_folders() -> None:
    node = a_node()

    assert node.plugins_dir == node.kubelet_dir / "plugins"
    assert node.plugins_registry_dir == node.kubelet_dir / "plugins_registry"
    assert node.cdi_dir == Path("/tmp/c/n1/cdi")


def test_a_scope_fits_an_interface_name_and_differs_by_directory_and_node() -> None:
    scopes = {layout.scope(Path(directory), node) for directory in ("/a", "/b") for node in ("n1", "n2")}

    assert len(scopes) == 4
    assert all(len(scope) == 15 for scope in scopes)


@pytest.mark.parametrize(
    ("directory", "names", "told"),
    [
        ("c", ["n1"], "cluster directory 'c' is relative: give an absolute path"),
        ("/c", ["N1"], "node name 'N1' is not lower-case letters, digits and dashes: choose another"),
        ("/c", ["n1", "n1"], "node name 'n1' is given twice: each node needs its own"),
        (
            "/tmp/a-directory-that-is-rather-deep/c",
            ["n1"],
            "cluster directory '/tmp/a-directory-that-is-rather-deep/c' is too deep: the sockets of node 'n1'"
            " lie in '/tmp/a-directory-that-is-rather-deep/c/n1/s', 1 characters more than the 42 that unix"
            " sockets leave; choose a shorter directory such as /tmp/parley",
        ),
    ],
)
def test_what_cannot_be_laid_out_is_refused_with_the_remedy(directory: str, names: list[str], told: str) -> None:
    with pytest.raises(LayoutError) as caught:
        layout.check(Path(directory), [NodeOptions(name) for name in names])

    assert str(caught.value) == told


def test_a_control_plane_without_nodes_may_lie_deeper() -> None:
    layout.check(Path("/tmp/a-directory-that-is-rather-deep/c"), [])


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    program = Command("parley-controller", ("python", "-m", "parley"), "http://127.0.0.1:1/readyz", {"A": "b"})
    recorded = state.ClusterState(a_layout(a_node(), directory=tmp_path), "another boot").with_program(program)
    recorded = recorded.with_process("etcd", ProcessIdentity(12, 34))

    state.write(recorded)

    assert state.read(tmp_path) == replace(recorded, processes={})


def test_processes_of_the_running_machine_are_read_back_too(tmp_path: Path) -> None:
    recorded = ClusterState(a_layout(directory=tmp_path), boot_id()).with_process("etcd", ProcessIdentity(12, 34))

    state.write(recorded)

    assert state.read(tmp_path) == recorded
    assert recorded.without_process("etcd").processes == {}


def test_what_many_record_at_once_is_all_recorded(tmp_path: Path) -> None:
    """One thread kills a plugin while another one starts a plugin again."""
    known = ClusterState(a_layout(directory=tmp_path), boot_id())

    def record(number: int) -> None:
        state.change(known, lambda found: found.with_process(f"part-{number}", ProcessIdentity(number, 1)))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(record, range(64)))

    found = state.read(tmp_path)
    assert found is not None
    assert len(found.processes) == 64


def test_a_directory_without_a_record_has_no_state(tmp_path: Path) -> None:
    assert state.read(tmp_path) is None
    assert state.read(tmp_path / "absent") is None


def test_a_record_that_cannot_be_understood_tells_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")

    with pytest.raises(StateError) as caught:
        state.read(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path}/state.json is not a state file of this version (KeyError('layout')): end the processes that"
        f" carry PARLEY_DEVCLUSTER={tmp_path} in their environment, then remove {tmp_path}"
    )


def test_the_images_share_one_layer_of_busybox_and_its_links(tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_text("#!/bin/sh\nprintf 'busybox\\nsh\\nsleep\\n'\n")
    busybox.chmod(0o755)

    with tarfile.open(images.archive(tmp_path / "images.tar", images.busybox_images(busybox))) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        read = {name: file.read() for name, file in files.items() if file is not None}
    manifest = json.loads(read["manifest.json"])
    ((name,),) = {tuple(image["Layers"]) for image in manifest}
    with tarfile.open(fileobj=BytesIO(read[name])) as layer:
        links = {member.name: member.linkname for member in layer if member.issym()}

    assert [image["RepoTags"] for image in manifest] == [
        ["parley.dev/busybox:dev"],
        ["docker.io/library/busybox:1.37"],
        ["parley.dev/pause:dev"],
    ]
    assert links == {"bin/sh": "busybox", "bin/sleep": "busybox"}
    assert "trap" in json.loads(read[manifest[2]["Config"]])["config"]["Cmd"][2]
