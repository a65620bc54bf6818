"""Where the plugin's two unix sockets are, and how a gRPC server comes to serve on one and leaves it.

A second server would silently take over a path that is in use, and the first one remove it later. So two
plugins of a rolling update have different names, by their pod's UID, and a path where somebody answers is
refused. A socket without anybody behind it is left from a crash and removed.
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

LONGEST = 107
"""Bytes of a unix socket's path, without the final zero (struct sockaddr_un)."""


class SocketRefused(Exception):
    """Raised when a socket's path is too long or in use."""


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
                f"socket {path}: has {length} bytes, {LONGEST} are possible: choose a shorter --{option}"
            )
    return sockets


@asynccontextmanager
async def serving(path: Path, add: Callable[[grpc.aio.Server], None], grace: float) -> AsyncIterator[None]:
    """Serve on the socket what `add` adds to a server. In the end calls in progress have `grace` seconds; gRPC
    removes the socket before it waits for them, so that no new ones come.

    Raises SocketRefused if another process serves there, OSError if the folder cannot be made.
    """
    _clear(path)
    server = grpc.aio.server()
    add(server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace)


def is_served(path: Path) -> bool:
    """Whether somebody answers there."""
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
        f"socket {path}: another parley-kubelet serves there: stop it, or set POD_UID to tell the two apart"
    )
