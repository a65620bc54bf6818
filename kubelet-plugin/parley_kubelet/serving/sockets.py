"""The paths of the plugin's two unix sockets, and gRPC servers that serve on them.

A second server would silently take over a path that is in use, and the first one would remove it later. So two
plugins of a rolling update have different names, by their pod's UID, and a path where a process answers is
refused. A socket without a process was left by a crash, and is removed.

A removed socket is created again: the kubelet unregisters a plugin whose registration socket is removed, and pods
with claims would fail on the node until the plugin is restarted.
"""

import asyncio
import errno
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio
import structlog

LONGEST = 107
"""Bytes of a unix socket's path, without the final zero (struct sockaddr_un)."""

CHECK_SECONDS: Final = 2.0
"""Seconds between two checks whether the socket still exists."""

_POD_UID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

Add = Callable[[grpc.aio.Server], None]

log = structlog.get_logger(__name__)


class SocketRefused(Exception):
    """Raised if a socket's path is too long or in use, or if no socket can be created there."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """The paths of the plugin's own socket, and of its registration socket, by which the kubelet finds it."""

    plugin: Path
    registration: Path


def socket_paths(plugins: Path, registry: Path, driver: str, instance: str) -> Sockets:
    """The two paths; `instance` is the pod's UID, or "" where only one plugin can run. Raises SocketRefused."""
    suffix = f"-{instance}" if instance else ""
    sockets = Sockets(plugins / driver / f"dra{suffix}.sock", registry / f"{driver}{suffix}-reg.sock")
    for option, path in (("plugins-dir", sockets.plugin), ("plugins-registry-dir", sockets.registration)):
        if (length := len(str(path).encode())) > LONGEST:
            raise SocketRefused(
                f"socket {path}: has {length} bytes, at most {LONGEST} are allowed: choose a shorter --{option}"
            )
    return sockets


def remove_dead(own: Sockets, instance: str) -> None:
    """Remove the driver's sockets of pods that were killed: a new pod has other names, and the kubelet, once it is
    restarted, would try to register the dead ones for ever. Raises OSError."""
    for path in (own.plugin, own.registration) if instance else ():
        name = re.compile(_POD_UID.join(map(re.escape, path.name.split(instance))))
        for other in path.parent.iterdir() if path.parent.is_dir() else ():
            if other != path and name.fullmatch(other.name) and _is_dead(other):
                other.unlink(missing_ok=True)
                log.warning("the socket of a plugin that was killed was removed", socket=str(other))


@asynccontextmanager
async def serving(path: Path, add: Add, grace: float, check_seconds: float = CHECK_SECONDS) -> AsyncIterator[None]:
    """Serve the services that `add` adds to a server, within the block. At its end calls in progress have `grace`
    seconds; gRPC removes the socket before it waits for them, so that there are no new ones.

    Raises SocketRefused if another process serves there or no socket can be created, OSError if no folder can be.
    """
    servers: list[grpc.aio.Server] = []
    await _start(path, add, servers)
    keeping = asyncio.create_task(_keep(path, add, servers, check_seconds))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await asyncio.gather(*(server.stop(grace) for server in servers))


async def _start(path: Path, add: Add, servers: list[grpc.aio.Server]) -> None:
    _clear(path)
    server = grpc.aio.server()
    add(server)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError:  # gRPC does not say why
        raise SocketRefused(f"socket {path}: cannot be made: check that the folder can be written") from None
    servers.append(server)
    await server.start()


async def _keep(path: Path, add: Add, servers: list[grpc.aio.Server], check_seconds: float) -> None:
    """Start another server whenever the socket was removed. Earlier ones keep their connections, and must not be
    stopped alone: that would remove the new socket."""
    while True:
        await asyncio.sleep(check_seconds)
        if _is_gone(path):
            try:
                await _start(path, add, servers)
                log.warning("a removed socket was recreated", socket=str(path))
            except (SocketRefused, OSError) as error:
                log.warning("a removed socket is not recreated yet", socket=str(path), reason=str(error))


def _is_gone(path: Path) -> bool:
    """Whether no file of that name exists."""
    return not path.exists()


def is_served(path: Path) -> bool:
    """Whether a process answers there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(str(path)) == 0


def _is_dead(path: Path) -> bool:
    """Whether no process listens there; one that does not answer is not dead."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED


def _clear(path: Path) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise SocketRefused(
        f"socket {path}: another parley-kubelet serves there: stop it, or set POD_UID to distinguish the two"
    )
