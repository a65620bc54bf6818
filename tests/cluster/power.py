"""A node that loses power and comes back: what lies on its disk survives, and nothing else.

Processes, mounts, network namespaces, cgroups and what a machine has in /run go; the kubelet's folder, the
container runtime's root and the plugin's state stay. The machine itself runs on, so a plugin is shown another boot
of it.
"""

import shutil
import sys
import uuid
from pathlib import Path
from typing import Final

from parley_devcluster import Cluster, machine, processes
from parley_devcluster.layout import Node

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_SHIM: Final = "containerd-shim"


def power_off(cluster: Cluster, node: Node) -> None:
    """End all that runs on the node, at once. Its plugin is the caller's to kill, before."""
    for name in (node.kubelet, node.containerd):
        cluster.component(name).kill()
    for process in processes.every():
        if processes.program(process).startswith(_SHIM) and _is_of(node, process.pid):
            processes.kill(process)
    for pid in machine.cgroup_processes(node.scope):
        if (contained := processes.identify(pid)) is not None:
            processes.kill(contained)
    for point in machine.mounts_below(node.folder):
        machine.unmount(point)
    machine.remove_cgroups(node.scope)
    for folder in (node.run_dir, node.cdi_dir, node.shim_sockets):
        _empty(folder)


def power_on(cluster: Cluster, node: Node) -> None:
    """Start what the machine starts by itself; the kubelet may not be ready yet when this returns."""
    machine.make_cgroups(node.scope)
    cluster.component(node.containerd).start()
    cluster.component(node.kubelet).launch()


def in_another_boot(folder: Path) -> tuple[str, ...]:
    """The command, up to the plugin's options, of a plugin that finds another boot id than this machine has."""
    file = folder / "boot_id"
    file.write_text(f"{uuid.uuid4()}\n")
    unshare = shutil.which("unshare")
    assert unshare is not None, "unshare is missing: install util-linux"
    script = f'mount --bind {file} {_BOOT_ID} && exec "$@"'
    return (unshare, "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "parley_kubelet")


def _is_of(node: Node, pid: int) -> bool:
    try:
        return str(node.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
