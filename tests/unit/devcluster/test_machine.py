"""What is read of the machine, and what is ended in which order."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from parley_devcluster import debian, machine, processes, requirements, startup, teardown
from parley_devcluster.layout import Layout, Node, NodeOptions, Ports
from parley_devcluster.processes import ProcessIdentity
from parley_devcluster.startup import ClusterError
from parley_devcluster.state import ClusterState, write
from parley_devcluster.updown import default_directory, down

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
31 22 0:27 / /tmp/with\\040blank rw,relatime - tmpfs tmpfs rw
"""
ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


def test_mount_points_are_read_with_their_blanks() -> None:
    assert [(str(mount.point), mount.kind) for mount in machine.mounts(MOUNTS)] == [
        ("/", "ext4"),
        ("/sys/fs/cgroup/cpu", "cgroup"),
        ("/tmp/with blank", "tmpfs"),
    ]


def test_routes_are_read_without_the_default_route() -> None:
    assert machine.routes(ROUTES) == [IPv4Network("192.0.2.0/24")]


def test_a_subnet_avoids_every_network_that_has_a_route() -> None:
    assert machine.free_subnet("parley-00000102", []) == "10.201.2"
    assert machine.free_subnet("parley-00000102", [IPv4Network("10.201.0.0/22")]) == "10.201.4"


def test_a_machine_without_a_free_subnet_says_what_to_do() -> None:
    with pytest.raises(machine.MachineError) as caught:
        machine.free_subnet("parley-00000102", [IPv4Network("10.0.0.0/8")])

    assert str(caught.value) == (
        "no /24 network in 10.200.0.0/13 is free: remove routes that are not needed (`ip route`)"
    )


def test_ports_are_distinct_and_below_those_of_outgoing_connections() -> None:
    ports = machine.free_ports(20)

    assert len(set(ports)) == 20
    assert all(20000 <= port < 30000 for port in ports)


@pytest.mark.parametrize(("mask", "lacks"), [("000001fffeffffff", True), ("000001ffffffffff", False)])
def test_the_capability_that_decides_about_oom_scores_is_read(mask: str, lacks: bool) -> None:
    assert machine.lacks_sys_resource(f"Name:\tx\nCapEff:\t{mask}\n") is lacks


def test_missing_packages_are_named_with_the_command_to_run() -> None:
    missing = debian.missing(lambda path: path != debian.BUSYBOX)

    assert missing == ["busybox-static"]
    assert debian.absence(missing) == (
        "real nodes need the packages busybox-static, which are not installed: run"
        " `apt-get update && apt-get install -y --no-install-recommends busybox-static` as root"
    )


def test_a_machine_without_programs_and_go_says_what_it_lacks(tmp_path: Path) -> None:
    reasons = requirements.unmet(real_nodes=False, environment={"XDG_CACHE_HOME": str(tmp_path), "PATH": ""})

    assert reasons == [
        "etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl are not in the cache, and there"
        " is no Go to build them"
    ]


@pytest.mark.parametrize(("start", "listed"), [([], True), (["unshare", "--map-root-user", "--mount"], False)])
def test_a_kubelet_in_a_container_shares_nothing_with_this_machine(
    tmp_path: Path, start: list[str], listed: bool
) -> None:
    kubelet = tmp_path / "parley-kubelet9"
    shutil.copy("/bin/sleep", kubelet)
    process = subprocess.Popen([*start, str(kubelet), "60"])
    try:
        while processes.program(ProcessIdentity(process.pid, 0)) != kubelet.name:
            assert process.poll() is None

        assert (process.pid in processes.unmarked(kubelet.name)) is listed
    finally:
        process.kill()
        process.wait()


def test_kubelets_stop_first_and_the_api_server_before_etcd() -> None:
    node = Node(NodeOptions("n1"), Path("/c/n1"), "parley-1", "10.200.1", 1, 2)
    layout = Layout(Path("/c"), "v1.37.0", Ports(1, 2, 3, 4, 5, 6), (node,))

    assert teardown.stop_order(layout, ["etcd", "kubelet-n1", "parley-controller", "containerd-n1"]) == [
        "parley-controller",
        "kubelet-n1",
        "containerd-n1",
        "kube-scheduler",
        "kube-controller-manager",
        "kube-apiserver",
        "etcd",
    ]


@pytest.fixture
def sleeper() -> ProcessIdentity:
    """A process that ignores the request to end."""
    trapping = "import signal,time;signal.signal(15, signal.SIG_IGN);print('x', flush=True);time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", trapping], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    child.returncode = 0  # reaped by what is tested
    found = processes.identify(child.pid)
    assert found is not None
    return found


def test_a_process_that_does_not_end_by_itself_is_killed(sleeper: ProcessIdentity) -> None:
    assert processes.end(sleeper, 0.1) is True
    assert not processes.alive(sleeper)


def test_a_foreign_process_with_a_recorded_id_is_left_alone(tmp_path: Path, sleeper: ProcessIdentity) -> None:
    other = ProcessIdentity(sleeper.pid, sleeper.started - 1)
    layout = Layout(tmp_path, "v1.37.0", Ports(1, 2, 3, 4, 5, 6))
    write(ClusterState(layout, processes.boot_id()).with_process("etcd", other))

    teardown.clean(tmp_path)

    assert processes.alive(sleeper)
    assert not (tmp_path / "state.json").exists()
    processes.kill(sleeper)


def test_a_process_of_the_cluster_that_was_not_recorded_is_ended(tmp_path: Path) -> None:
    directory = tmp_path.resolve()
    environment = {processes.MARK: str(directory), "PATH": os.environ["PATH"]}
    started = processes.spawn(["/bin/sleep", "60"], environment, tmp_path / "log")
    while started not in processes.marked(directory):
        time.sleep(0.001)  # it was started before the kernel shows its environment
    write(ClusterState(Layout(directory, "v1.37.0", Ports(1, 2, 3, 4, 5, 6)), processes.boot_id()))

    teardown.clean(tmp_path)

    assert not processes.alive(started)


def test_a_process_that_is_gone_is_ended_already() -> None:
    child = subprocess.Popen(["/bin/sleep", "60"])
    found = processes.identify(child.pid)
    child.send_signal(signal.SIGKILL)
    child.wait()

    assert found is not None
    assert not processes.alive(found)
    assert processes.end(found, 1.0) is False


def test_a_directory_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()

    with pytest.raises(ClusterError) as caught:
        startup.make_empty(tmp_path)

    assert str(caught.value) == f"cluster directory {tmp_path} holds other files: name an empty or a new one"
    assert (tmp_path / "thesis.txt").exists()


def test_there_is_nothing_to_take_down_where_nothing_was_started(tmp_path: Path) -> None:
    assert down(tmp_path) is False


def test_the_default_directory_is_short_and_the_users_own() -> None:
    assert default_directory() == Path(f"/tmp/parley-{os.geteuid()}")


def test_a_machine_without_a_browser_is_told_what_its_tests_need(tmp_path: Path) -> None:
    packages = {"chromium": tmp_path / "none", "there": tmp_path}

    missing = debian.missing(packages=packages)

    assert debian.absence(missing, who_needs=debian.TESTS) == (
        "tests in a browser need the packages chromium, which are not installed: run"
        " `apt-get update && apt-get install -y --no-install-recommends chromium` as root"
    )
