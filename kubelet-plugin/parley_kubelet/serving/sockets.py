"""Where the plugin's two unix sockets are, how a gRPC server comes to serve on one, stays there, and leaves it.

A second server would silently take over a path that is in use, and the first one remove it later. So two
plugins of a rolling update have different names, by their pod's UID, and a path where a process answers is
refused. A socket without anybody behind it is left from a crash and removed.

A socket that is removed is made again: the kubelet takes a removed registration socket for the plugin's end,
and pods with claims would fail on the node until the plugin is restarted.
"""

import asyncio
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

LOOK_AGAIN: Final = 2.0
"""Seconds after which it is seen that a socket is gone."""

Add = Callable[[grpc.aio.Server], None]

log = structlog.get_logger(__name__)


class SocketRefused(Exception):
    """Raised when a socket's path is too long or in use, or when none can be made there."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """The paths of the plugin's own socket and of the one by which the kubelet finds it."""

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


@asynccontextmanager
async def serving(path: Path, add: Add, grace: float, look_again: float = LOOK_AGAIN) -> AsyncIterator[None]:
    """Serve on the socket what `add` adds to a server. In the end calls in progress have `grace` seconds; gRPC
    removes the socket before it waits for them, so that no new ones come.

    Raises SocketRefused if another process serves there or no socket can be made, OSError if the folder cannot be.
    """
    servers: list[grpc.aio.Server] = []
    await _start(path, add, servers)
    keeping = asyncio.create_task(_keep(path, add, servers, look_again))
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


async def _keep(path: Path, add: Add, servers: list[grpc.aio.Server], look_again: float) -> None:
    """Start a further server when the socket is gone. Earlier ones go on with the connections that they have, and
    must not be stopped alone: that would remove the new socket."""
    while True:
        await asyncio.sleep(look_again)
        if _is_gone(path):
            try:
                await _start(path, add, servers)
                log.warning("a removed socket was recreated", socket=str(path))
            except (SocketRefused, OSError) as error:
                log.warning("a removed socket is not recreated yet", socket=str(path), reason=str(error))


def _is_gone(path: Path) -> bool:
    """Whether there is nothing of that name."""
    return not path.exists()


def is_served(path: Path) -> bool:
    """Whether a process answers there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(str(path)) == 0


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
