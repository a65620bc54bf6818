"""What a cluster creates on the machine outside its directory and its processes: cgroups, bridges, mounts.

Each has a name that is derived from the cluster's directory, and can be found and removed by that name alone.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import random
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from parley_devcluster import commands

_INOTIFY_INSTANCES = 1024
_PORTS = range(20000, 30000)  # below the ports that the kernel gives to outgoing connections
_SYS_RESOURCE = 24
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_UNIFIED = Path("/sys/fs/cgroup")
_CONTROLLERS = "+cpu +cpuset +memory +pids"


class MachineError(RuntimeError):
    """Something on this machine could not be created or removed."""


@dataclass(frozen=True)
class MountPoint:
    """One line of /proc/self/mountinfo."""

    point: Path
    kind: str


def mounts(text: str | None = None) -> list[MountPoint]:
    """All mounts of this process's namespace, in the order in which they were mounted."""
    lines = (text if text is not None else Path("/proc/self/mountinfo").read_text()).splitlines()
    found = []
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape").encode("latin-1").decode()
        found.append(MountPoint(Path(point), after.split()[0]))
    return found


def mounts_below(directory: Path) -> list[Path]:
    """The mount points inside the directory, the last mounted first."""
    return [mount.point for mount in reversed(mounts()) if directory in mount.point.parents]


def unmount(point: Path) -> None:
    """Detach the mount, if it still exists."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOENT):
        raise MachineError(
            f"{point} could not be unmounted: {os.strerror(number)}; run `umount -l {point}` as root"
        )


def cgroups(scope: str) -> list[Path]:
    """The existing cgroups of that name, in all hierarchies."""
    roots = [mount.point for mount in mounts() if mount.kind in ("cgroup", "cgroup2")]
    return [root / scope for root in roots if (root / scope).is_dir()]


def make_cgroups(scope: str) -> None:
    """Create the kubelet's root cgroup in every v1 hierarchy, or in the unified one if there is no other.

    A new v1 cpuset is empty and would accept no process. In a unified hierarchy the controllers have to be
    delegated; only v1 has been tested on a machine.
    """
    v1 = [mount.point for mount in mounts() if mount.kind == "cgroup"]
    try:
        for root in v1:
            _make_v1_cgroup(root, scope)
        if not v1:
            (_UNIFIED / "cgroup.subtree_control").write_text(_CONTROLLERS)
            (_UNIFIED / scope).mkdir(exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"cgroup {scope} could not be made ({error.strerror}: {error.filename}): real nodes need cgroups that"
            " root may change; start the cluster with fake nodes only"
        ) from error


def _make_v1_cgroup(root: Path, scope: str) -> None:
    (root / scope).mkdir(exist_ok=True)
    for file in ("cpuset.cpus", "cpuset.mems"):
        if (root / file).exists():
            (root / scope / file).write_text((root / file).read_text())


def cgroup_processes(scope: str) -> set[int]:
    """The ids of all processes in cgroups of that name and their descendants."""
    found: set[int] = set()
    for top in cgroups(scope):
        for folder, _, _ in os.walk(top):
            with suppress(OSError):
                found.update(int(line) for line in (Path(folder) / "cgroup.procs").read_text().split())
    return found


def remove_cgroups(scope: str, limit: float = 5.0) -> None:
    """Remove the cgroups, inner ones first. The kernel may keep one for a moment after its last process."""
    deadline = time.monotonic() + limit
    while remaining := [folder for top in cgroups(scope) for folder, _, _ in os.walk(top, topdown=False)]:
        for folder in remaining:
            with suppress(OSError):
                Path(folder).rmdir()
        if not cgroups(scope):
            return
        if time.monotonic() > deadline:
            raise MachineError(f"cgroup {remaining[-1]} could not be removed: look for processes in it")
        time.sleep(0.05)


def make_bridge(name: str, address: str) -> None:
    """Create a bridge with an address of its /24 network, before the first pod, because it is the node's address.

    Its hardware address is fixed. Otherwise it would change as pods come and go, and other pods would lose their
    connection for seconds.
    """
    hardware = "02" + "".join(f":{byte:02x}" for byte in hashlib.sha256(name.encode()).digest()[:5])
    _ip("link", "add", "name", name, "address", hardware, "type", "bridge")
    _ip("address", "add", f"{address}/24", "dev", name)
    _ip("link", "set", name, "up")


def interfaces(bridge: str) -> list[str]:
    """The interfaces attached to the bridge, then the bridge, if it exists."""
    folder = Path("/sys/class/net") / bridge
    if not folder.exists():
        return []
    attached = sorted(entry.name for entry in (folder / "brif").iterdir()) if (folder / "brif").exists() else []
    return [*attached, bridge]


def remove_interfaces(bridge: str) -> None:
    """Delete the bridge and the interfaces attached to it; raises `MachineError` if it remains."""
    for name in interfaces(bridge):
        with suppress(MachineError):  # the other end of a pair may have gone with its namespace
            _ip("link", "delete", name)
    if interfaces(bridge):
        raise MachineError(f"interface {bridge} could not be removed: run `ip link delete {bridge}` as root")


def free_ports(count: int) -> list[int]:
    """Distinct ports on which nothing listens now."""
    with ExitStack() as stack:
        return [port for _, port in zip(range(count), _bound(stack), strict=False)]


def free_subnet(name: str, taken: Sequence[IPv4Network]) -> str:
    """The first three numbers of a free /24 network in 10.200.0.0/13; the search starts at one derived from the
    name."""
    start = int(name.rpartition("-")[2], 16)
    for step in range(2048):
        number = (start + step) % 2048
        subnet = f"10.{200 + number // 256}.{number % 256}"
        if not any(network(subnet).overlaps(other) for other in taken):
            return subnet
    raise MachineError("no /24 network in 10.200.0.0/13 is free: remove routes that are not needed (`ip route`)")


def network(subnet: str) -> IPv4Network:
    """The /24 network with these first three numbers."""
    return IPv4Network(f"{subnet}.0/24")


def routes(text: str | None = None) -> list[IPv4Network]:
    """The networks that the machine has routes to, without the default route."""
    lines = (text if text is not None else Path("/proc/net/route").read_text()).splitlines()[1:]
    found = []
    for fields in (line.split() for line in lines):
        address, mask = (socket.inet_ntoa(bytes.fromhex(fields[index])[::-1]) for index in (1, 7))
        if mask != "0.0.0.0":
            found.append(IPv4Network(f"{address}/{mask}", strict=False))
    return found


def allow_file_watches() -> None:
    """Raise the limit of inotify instances until the next reboot. Without an instance left for root, a kubelet
    exits: a node takes 8, a control plane as many, and the default limit is 128."""
    granted = Path("/proc/sys/fs/inotify/max_user_instances")
    with suppress(OSError):  # if it can't be changed, nodes may still have enough
        if int(granted.read_text()) < _INOTIFY_INSTANCES:
            granted.write_text(str(_INOTIFY_INSTANCES))


def lacks_sys_resource(status: str | None = None) -> bool:
    """Whether this process lacks CAP_SYS_RESOURCE, which is needed to lower OOM scores."""
    text = status if status is not None else Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in text.splitlines() if line.startswith("CapEff:"))
    return not int(effective, 16) >> _SYS_RESOURCE & 1


def _bound(stack: ExitStack) -> Iterator[int]:
    for port in random.sample(_PORTS, len(_PORTS)):
        tried = stack.enter_context(socket.socket())
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            tried.bind(("127.0.0.1", port))
            yield port


def _ip(*arguments: str) -> None:
    commands.run(["ip", *arguments], MachineError, limit=60)
