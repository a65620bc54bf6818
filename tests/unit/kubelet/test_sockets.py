"""The sockets' paths, and who may serve there."""

import asyncio
import socket
from pathlib import Path

import grpc.aio
import pytest

from parley_kubelet.sockets import SocketRefused, Sockets, serving, socket_paths


def nothing(server: grpc.aio.Server) -> None:
    """Adds no service."""


def test_one_plugin_per_node() -> None:
    assert socket_paths(Path("/p"), Path("/r"), "device.parley.dev", "") == Sockets(
        Path("/p/device.parley.dev/dra.sock"), Path("/r/device.parley.dev-reg.sock")
    )


def test_two_plugins_of_a_rolling_update_have_different_sockets() -> None:
    assert socket_paths(Path("/p"), Path("/r"), "device.parley.dev", "pod-uid") == Sockets(
        Path("/p/device.parley.dev/dra-pod-uid.sock"), Path("/r/device.parley.dev-pod-uid-reg.sock")
    )


@pytest.mark.parametrize(
    ("plugins", "registry", "reason"),
    [
        (
            Path("/" + "p" * 100),
            Path("/r"),
            f"socket /{'p' * 100}/gpu/dra.sock: has 114 bytes, 107 are possible: choose a shorter --plugins-dir",
        ),
        (
            Path("/p"),
            Path("/" + "r" * 100),
            f"socket /{'r' * 100}/gpu-reg.sock: has 114 bytes, 107 are possible:"
            " choose a shorter --plugins-registry-dir",
        ),
    ],
)
def test_a_path_that_is_too_long(plugins: Path, registry: Path, reason: str) -> None:
    with pytest.raises(SocketRefused) as error:
        socket_paths(plugins, registry, "gpu", "")
    assert str(error.value) == reason


async def test_a_socket_that_is_served_is_not_taken_over(folder: Path) -> None:
    path = folder / "made" / "dra.sock"
    async with serving(path, nothing, grace=1):
        with pytest.raises(SocketRefused) as error:
            async with serving(path, nothing, grace=1):
                pass
        assert path.is_socket()
    assert not path.exists()
    assert str(error.value) == (
        f"socket {path}: another parley-kubelet serves there: stop it, or set POD_UID to tell the two apart"
    )


async def test_a_socket_that_a_crash_left_is_replaced(folder: Path) -> None:
    path = folder / "dra.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with serving(path, nothing, grace=1), grpc.aio.insecure_channel(f"unix:{path}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 5)
