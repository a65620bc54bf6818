"""The sockets' paths, and who may serve there."""

import asyncio
import dataclasses
import socket
from pathlib import Path

import grpc
import grpc.aio
import pytest

from parley_kubelet.serving.sockets import SocketRefused, Sockets, is_served, remove_dead, serving, socket_paths


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
            f"socket /{'p' * 100}/gpu/dra.sock: has 114 bytes, at most 107 are allowed: choose a shorter "
            "--plugins-dir",
        ),
        (
            Path("/p"),
            Path("/" + "r" * 100),
            f"socket /{'r' * 100}/gpu-reg.sock: has 114 bytes, at most 107 are allowed:"
            " choose a shorter --plugins-registry-dir",
        ),
    ],
)
def test_a_path_that_is_too_long(plugins: Path, registry: Path, reason: str) -> None:
    with pytest.raises(SocketRefused) as error:
        socket_paths(plugins, registry, "gpu", "")
    assert str(error.value) == reason


MINE, OTHER, LIVE = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))


def dead_socket(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    return path


def test_sockets_of_pods_that_were_killed_are_removed_and_no_others(folder: Path) -> None:
    def paths(driver: str, instance: str) -> Sockets:
        return socket_paths(folder / "p", folder / "r", driver, instance)

    (folder / "p").mkdir()
    killed = [dead_socket(path) for path in dataclasses.astuple(paths("a.io", OTHER))]
    others = [
        *(dead_socket(path) for path in dataclasses.astuple(paths("a.io", MINE))),
        *(dead_socket(path) for path in dataclasses.astuple(paths("a.io", ""))),
        *(dead_socket(path) for path in dataclasses.astuple(paths("a.io-b.io", OTHER))),
    ]
    live = paths("a.io", LIVE).registration
    with socket.socket(socket.AF_UNIX) as serves:
        serves.bind(str(live))
        serves.listen()
        remove_dead(paths("a.io", MINE), MINE)
        remove_dead(paths("a.io", ""), "")
        assert [path.exists() for path in killed] == [False, False]
        assert all(path.exists() for path in (live, *others))


def test_where_no_plugin_was_before_no_socket_is_dead(folder: Path) -> None:
    remove_dead(socket_paths(folder / "p", folder / "r", "a.io", MINE), MINE)
    assert list(folder.iterdir()) == []


async def test_a_socket_that_is_served_is_not_taken_over(folder: Path) -> None:
    path = folder / "made" / "dra.sock"
    async with serving(path, nothing, grace=1):
        with pytest.raises(SocketRefused) as error:
            async with serving(path, nothing, grace=1):
                pass
        assert path.is_socket()
    assert not path.exists()
    assert str(error.value) == (
        f"socket {path}: another parley-kubelet serves there: stop it, or set POD_UID to distinguish the two"
    )


async def test_a_socket_that_a_crash_left_is_replaced(folder: Path) -> None:
    path = folder / "dra.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with serving(path, nothing, grace=1), grpc.aio.insecure_channel(f"unix:{path}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)


async def test_a_socket_that_was_removed_is_made_again_and_connections_stay(folder: Path) -> None:
    path = folder / "made" / "dra.sock"
    channel = grpc.aio.insecure_channel(f"unix:{path}")
    async with channel, serving(path, nothing, grace=1, check_seconds=0.01):
        await asyncio.wait_for(channel.channel_ready(), 60)
        for _ in range(2):
            path.unlink()
            path.parent.rmdir()
            async with asyncio.timeout(60):
                while not is_served(path):  # noqa: ASYNC110 - nobody tells when a socket is there
                    await asyncio.sleep(0.01)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
    assert not path.exists()


async def test_a_socket_that_was_removed_is_left_to_another_plugin_that_came(folder: Path) -> None:
    path = folder / "dra.sock"
    async with serving(path, nothing, grace=1, check_seconds=0.01):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            theirs = path.stat().st_ino
            await asyncio.sleep(0.1)
            assert path.stat().st_ino == theirs
