"""Nothing of a cluster remains: after a normal end, after its owner was killed, after a start that failed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.cluster import starting

from parley_devcluster import (
    Cluster,
    ClusterError,
    ComponentFailed,
    Node,
    NodeOptions,
    clean,
    down,
    machine,
    processes,
)

pytestmark = pytest.mark.cluster

OWNER = """
import sys, time
from pathlib import Path
from parley_devcluster import Cluster, NodeOptions

cluster = Cluster.start(Path(sys.argv[1]), nodes=[NodeOptions("n1")])
image = ("--image=parley.dev/busybox:dev", "--image-pull-policy=Never")
cluster.kubectl("run", "victim", *image, "--", "sleep", "600")
cluster.kubectl("wait", "--for=condition=Ready", "pod/victim", "--timeout=120s")
print("ready", flush=True)
time.sleep(600)
"""

DETACHED = """
import sys
from pathlib import Path
from parley_devcluster import up

print(up(Path(sys.argv[1]), nodes=(), fake_nodes=1, environment={}).how)
"""


def remains(directory: Path, nodes: tuple[Node, ...]) -> list[str]:
    """Every process, mount, interface and cgroup of the cluster that still exists."""
    found = [f"process {process.pid}" for process in processes.marked(directory)]
    found += [f"mount {point}" for point in machine.mounts_below(directory)]
    for node in nodes:
        found += [f"interface {name}" for name in machine.interfaces(node.scope)]
        found += [f"cgroup {folder}" for folder in machine.cgroups(node.scope)]
        found += [f"network result {file}" for file in Path("/var/lib/cni/results").glob(f"*{node.scope}*")]
        found += [f"log link {link}" for link in Path("/var/log/containers").glob("*") if links_into(link, node)]
    return found


def links_into(link: Path, node: Node) -> bool:
    return link.is_symlink() and node.pod_logs_dir in link.readlink().parents


def network_namespaces(pids: Iterable[int | str]) -> set[str]:
    """The network namespaces that these processes are in, this machine's own left out."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            found.add(str(Path(f"/proc/{pid}/ns/net").readlink()))
    return found - {str(Path("/proc/self/ns/net").readlink())}


@pytest.fixture(scope="module")
def abandoned(able: None) -> Iterator[Sequence[Path]]:
    """Two clusters with a running pod, whose owners were killed. They were started side by side."""
    with ExitStack() as stack:
        places = [stack.enter_context(starting.directory()) for _ in range(2)]
        command = [sys.executable, "-c", OWNER]
        owners = [subprocess.Popen([*command, str(place)], stdout=subprocess.PIPE, text=True) for place in places]
        for owner in owners:
            stack.callback(owner.kill)
        for owner in owners:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "ready\n"
            owner.stdout.close()
            owner.send_signal(signal.SIGKILL)
            owner.wait()
        yield places


def test_a_stopped_cluster_leaves_nothing_but_files(directory: Path) -> None:
    cluster = Cluster.start(directory / "c", nodes=[NodeOptions("n1"), NodeOptions("n2")])
    for node in cluster.nodes:
        overrides = f'{{"spec": {{"nodeName": "{node.name}"}}}}'
        cluster.kubectl(
            *("run", f"on-{node.name}", "--image=parley.dev/busybox:dev", "--image-pull-policy=Never"),
            *(f"--overrides={overrides}", "--", "sleep", "600"),
        )
    cluster.kubectl("wait", "--for=condition=Ready", "pods", "--all", "--timeout=120s")
    running = remains(cluster.directory, cluster.nodes)
    namespaces = network_namespaces(pid for node in cluster.nodes for pid in machine.cgroup_processes(node.scope))

    cluster.stop()

    assert {kind.split()[0] for kind in running} == {"process", "mount", "interface", "cgroup", "network", "log"}
    assert remains(cluster.directory, cluster.nodes) == []
    assert len(namespaces) == 2, "one of each pod"
    assert not namespaces & network_namespaces(process.name for process in Path("/proc").glob("[0-9]*"))
    assert (cluster.directory / "logs" / "kubelet-n1.log").exists()


def test_what_a_killed_owner_left_is_taken_down_by_another_process(abandoned: Sequence[Path]) -> None:
    place = abandoned[0]
    left = Cluster.attach(place)
    assert left.component("kubelet-n1").running

    clean(place)

    assert remains(left.directory, left.nodes) == []
    with pytest.raises(ClusterError, match=r"^no cluster runs in .*: start one with `make cluster`$"):
        Cluster.attach(place)


def test_a_start_takes_down_what_an_earlier_owner_left_in_the_directory(abandoned: Sequence[Path]) -> None:
    place = abandoned[1]
    left = Cluster.attach(place)
    assert left.component("kubelet-n1").running

    with Cluster.start(place) as cluster:
        assert cluster.kubectl("get", "pods", "--all-namespaces", "-o", "name") == ""
        assert remains(left.directory, left.nodes) != []  # the new control plane
        assert [kind for kind in remains(left.directory, left.nodes) if not kind.startswith("process")] == []

    assert remains(left.directory, left.nodes) == []


def test_a_component_that_ends_early_shows_its_log_and_the_rest_is_taken_down(directory: Path) -> None:
    place = (directory / "c").resolve()

    with pytest.raises(ComponentFailed) as caught:
        Cluster.start(place, scheduler_config={"parallelism": "many"})

    assert str(caught.value).startswith(
        f"kube-scheduler ended early; the end of {place}/logs/kube-scheduler.log:\n"
    )
    assert "parallelism" in str(caught.value)
    assert processes.marked(place) == []


def test_a_cluster_outlives_the_command_that_brought_it_up_until_it_is_taken_down(directory: Path) -> None:
    place = directory / "c"
    done = [
        subprocess.run([sys.executable, "-c", DETACHED, str(place)], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]

    assert done[0].stdout == f"a cluster of this machine's processes in {place}\n"
    assert done[1].stdout == f"the cluster that runs in {place} already\n"
    assert Cluster.attach(place).kubectl("get", "nodes", "-o", "name") == "node/fake-0\n"
    assert down(place) is True
    assert processes.marked(place.resolve()) == []
    assert not place.exists()
    assert down(place) is False
