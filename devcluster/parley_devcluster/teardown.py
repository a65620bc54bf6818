"""Takes a cluster down according to the record in its directory, in the same way after a crash as otherwise.

The order matters. Kubelets are stopped first, or they would restart what ends; the API server is stopped before
etcd, or it would hang for minutes. Only processes are ended that were recorded (id and start time), that have the
cluster's directory in their environment, or that are in a cgroup of the cluster.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from parley_devcluster import machine, processes, state
from parley_devcluster.control_plane import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER
from parley_devcluster.layout import Layout, Node
from parley_devcluster.processes import ProcessIdentity

_LIMIT = 10.0  # seconds that a component has to terminate
_LAST = (SCHEDULER, CONTROLLER_MANAGER, API_SERVER, ETCD)
_LOG_LINKS = Path("/var/log/containers")
_NETWORK_RESULTS = Path("/var/lib/cni/results")
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")


class Leftovers(RuntimeError):
    """Parts of a cluster could not be taken down; the message names each of them."""


def clean(directory: Path) -> None:
    """End all processes of the cluster in `directory`, and remove what it created outside the directory.

    Does nothing if the directory records no cluster. Files in the directory, such as logs, are kept.
    Raises `Leftovers` with the names of what could not be removed, and may then be called again.
    """
    directory = directory.resolve()
    recorded = state.read(directory)
    if recorded is None:
        return
    layout = recorded.layout
    for name in stop_order(layout, recorded.processes):
        if name in recorded.processes:
            processes.end(recorded.processes[name], _LIMIT)
        for node in (node for node in layout.nodes if node.kubelet == name):
            _end_pods(node)
    for process in processes.marked(directory):
        processes.kill(process)
    failures = _failures(_removals(layout))
    failures += [f"process {process.pid}" for process in processes.marked(directory)]
    if failures:
        raise Leftovers(f"cluster in {directory} is not completely down: {'; '.join(failures)}")
    state.forget(directory)


def stop_order(layout: Layout, running: Sequence[str] | dict[str, ProcessIdentity]) -> list[str]:
    """Added programs, kubelets with their pods, container runtimes, then the control plane in reverse order."""
    kubelets = [node.kubelet for node in layout.nodes]
    runtimes = [node.containerd for node in layout.nodes]
    known = {*kubelets, *runtimes, *_LAST}
    return [*(name for name in running if name not in known), *kubelets, *runtimes, *_LAST]


def remove_directory(directory: Path) -> None:
    """Delete the directory of a cluster that is down. Raises `Leftovers` if anything is mounted in it."""
    mounted = machine.mounts_below(directory.resolve())
    if mounted:
        raise Leftovers(
            f"{mounted[0]} is still mounted, so {directory} is not deleted: run `umount -l {mounted[0]}`"
        )
    shutil.rmtree(directory, ignore_errors=True)


def _end_pods(node: Node, limit: float = _LIMIT) -> None:
    """Kill the processes in the node's cgroup, repeatedly, because a process may have started another
    meanwhile."""
    deadline = time.monotonic() + limit
    while pids := machine.cgroup_processes(node.scope):
        for pid in pids:
            process = processes.identify(pid)
            if process is not None:
                processes.kill(process, 2.0)
        if time.monotonic() > deadline:
            return  # what is left is reported when the cgroup cannot be removed
        time.sleep(0.02)


def _removals(layout: Layout) -> list[Callable[[], None]]:
    removals: list[Callable[[], None]] = [partial(_unmount_all, layout.directory)]
    for node in layout.nodes:
        removals.append(partial(machine.remove_interfaces, node.scope))
        removals.append(partial(machine.remove_cgroups, node.scope))
        removals.append(partial(_remove_files, node))
    if layout.nodes:
        removals.append(_remove_device_plugins)
    return removals


def _failures(removals: Sequence[Callable[[], None]]) -> list[str]:
    """Run every removal; returns the messages of those that failed."""
    failures = []
    for remove in removals:
        try:
            remove()
        except (machine.MachineError, OSError) as error:
            failures.append(str(error))
    return failures


def _unmount_all(directory: Path) -> None:
    for point in machine.mounts_below(directory):
        machine.unmount(point)


def _remove_files(node: Node) -> None:
    """Remove the node's log links and network results, which are in folders shared by all clusters of the
    machine."""
    if _LOG_LINKS.is_dir():
        for link in _LOG_LINKS.iterdir():
            if link.is_symlink() and node.pod_logs_dir in link.readlink().parents:
                link.unlink(missing_ok=True)
    if _NETWORK_RESULTS.is_dir():
        for file in _NETWORK_RESULTS.glob(f"{node.scope}-*"):
            file.unlink(missing_ok=True)


def _remove_device_plugins() -> None:
    """Remove the kubelet's device plugin folder, whose path is fixed, if it is empty and no kubelet runs."""
    if any(process for process in processes.every() if processes.program(process) == "kubelet"):
        return
    (_DEVICE_PLUGINS / "kubelet.sock").unlink(missing_ok=True)
    for folder in (_DEVICE_PLUGINS, _DEVICE_PLUGINS.parent):
        with suppress(OSError):
            folder.rmdir()
