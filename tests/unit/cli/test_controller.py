"""`parley controller`: who leads, what is given up at the end, what it says when it can't start."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer import BadParameter
from typer.testing import CliRunner

from parley.api.resources import LEASES
from parley.cli.extender import entry
from parley.cli.leading import Options, identities, serve
from parley.cli.main import app
from parley.control.telemetry.metrics import Metrics
from parley.drivers import built_in
from parley.kube.client import Client
from parley.kube.informer import Informer
from parley.kube.lease import LeaseLost
from parley.kube.memory import MemoryServer
from parley.scheduler.controller import Controller
from parley.simulate.virtual_time import run

NAMESPACE, LEASE = Options.namespace, Options.lease_name


def leader(client: Client, metrics: Metrics) -> Controller:
    return Controller(client, built_in(), metrics=metrics)


@asynccontextmanager
async def serving(
    client: Client, identity: str, lease_duration: int = Options.lease_duration
) -> AsyncIterator[None]:
    options = Options(identity, lease_duration=lease_duration)
    task = asyncio.create_task(serve(client, options, lambda _: client, leader))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def holder_becomes(client: Client, identity: str) -> None:
    async with asyncio.timeout(60):
        known = await client.list(LEASES, NAMESPACE)
        if any(lease.spec.holder_identity == identity for lease in known.items):
            return
        async for event in client.watch(LEASES, NAMESPACE, resource_version=known.resource_version):
            if event.object is not None and event.object.spec.holder_identity == identity:
                return


def test_the_first_one_leads_and_gives_the_lease_back_when_it_ends() -> None:
    async def story() -> None:
        client = MemoryServer().client()
        async with serving(client, "a"):
            await holder_becomes(client, "a")

        assert (await client.get(LEASES, LEASE, NAMESPACE)).spec.holder_identity == ""

    run(story())


def test_another_one_leads_only_when_the_first_has_ended() -> None:
    async def story() -> None:
        client = MemoryServer().client()
        first = asyncio.create_task(serve(client, Options("first"), lambda _: client, leader))
        await holder_becomes(client, "first")
        async with serving(client, "second"):
            await asyncio.sleep(60)
            assert (await client.get(LEASES, LEASE, NAMESPACE)).spec.holder_identity == "first"

            first.cancel()
            await holder_becomes(client, "second")

    run(story())


def test_the_lease_lasts_as_long_as_its_option_says() -> None:
    async def story() -> None:
        client = MemoryServer().client()
        async with serving(client, "a", lease_duration=6):
            await holder_becomes(client, "a")
            assert (await client.get(LEASES, LEASE, NAMESPACE)).spec.lease_duration_seconds == 6

    run(story())


def test_with_a_lease_to_follow_it_leads_when_that_is_held_on_this_host() -> None:
    async def story() -> None:
        client = MemoryServer().client()
        options = Options("a", follow_lease="parley-scheduler")
        following = asyncio.create_task(serve(client, options, lambda _: client, leader))
        await asyncio.sleep(60)
        assert not (await client.list(LEASES, NAMESPACE)).items

        scheduler = {"holderIdentity": f"{socket.gethostname()}_5ab5"}
        body = {"metadata": {"name": "parley-scheduler"}, "spec": scheduler}
        await client.create(LEASES, body, NAMESPACE)
        await holder_becomes(client, "a")

        moved = {"spec": {"holderIdentity": "elsewhere_5ab5"}}
        await client.patch(LEASES, "parley-scheduler", moved, NAMESPACE)
        with pytest.raises(LeaseLost, match="held by elsewhere_5ab5, not on host"):
            await following

    run(story())


class Stubborn:
    """Work that goes on when it is cancelled, as with a driver that catches everything; `ends` ends it."""

    caches: tuple[Informer[Any], ...] = ()

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.ends = asyncio.Event()

    async def run(self) -> None:
        self.ready.set()
        while not self.ends.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.ends.wait()


@pytest.mark.parametrize("how", ["stopped", "lease lost"])
async def test_work_that_ignores_its_cancellation_is_ended_by_force_before_others_may_lead(how: str) -> None:
    client, work, forced = MemoryServer().client(), Stubborn(), threading.Event()
    serving = asyncio.create_task(
        serve(client, Options("a", lease_duration=2), lambda _: client, lambda *_: work, overdue=forced.set)
    )
    await work.ready.wait()
    if how == "stopped":
        serving.cancel()
    else:
        taken = {"spec": {"holderIdentity": "b", "leaseDurationSeconds": 15}}
        await client.patch(LEASES, LEASE, taken, NAMESPACE)
    assert await asyncio.to_thread(forced.wait, 2.0)

    work.ends.set()
    with pytest.raises(asyncio.CancelledError if how == "stopped" else LeaseLost):
        await serving


async def test_work_that_ends_is_not_ended_by_force() -> None:
    client, work, forced = MemoryServer().client(), Stubborn(), threading.Event()
    serving = asyncio.create_task(
        serve(client, Options("a", lease_duration=1), lambda _: client, lambda *_: work, overdue=forced.set)
    )
    await work.ready.wait()
    serving.cancel()
    work.ends.set()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert not await asyncio.to_thread(forced.wait, 1.0)


def test_identities_are_never_used_twice() -> None:
    (first, _), (second, _) = (identities("parley-controller-0", one_at_a_time=False) for _ in range(2))

    assert first != second
    assert first.startswith("parley-controller-0_")


def test_a_container_replaces_only_processes_of_its_own_identity() -> None:
    assert identities("pod-1", one_at_a_time=False)[1] == ""
    _, replaced = identities("pod-1", one_at_a_time=True)
    assert identities("pod-1", one_at_a_time=True)[0].startswith(replaced)
    assert not identities("pod-11", one_at_a_time=True)[0].startswith(replaced)


def test_a_kubeconfig_that_does_not_exist(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["controller", "--kubeconfig", str(tmp_path / "none")])

    assert result.exit_code == 4
    assert f"error: kubeconfig {tmp_path / 'none'}, current context: no such file" in result.stderr


@pytest.fixture
def unreachable(tmp_path: Path) -> Path:
    """A kubeconfig of an API server that does not answer."""
    path = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
    path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    return path


async def test_sigterm_ends_it_cleanly_and_its_log_is_json(unreachable: Path) -> None:
    command = ("-m", "parley", "controller", "--kubeconfig", str(unreachable), "--log-format", "json")
    environment = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--identity", "me", stderr=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stderr is not None
    started = orjson.loads(await process.stderr.readline())
    process.send_signal(signal.SIGTERM)
    _, rest = await process.communicate()

    assert (started["event"], started["level"], started["lease"]) == ("started", "info", f"{NAMESPACE}/{LEASE}")
    assert started["identity"].startswith("me_")
    assert process.returncode == 0
    assert orjson.loads(rest.splitlines()[-1])["event"] == "stopped"


def test_a_port_that_is_taken_is_told_in_words(tmp_path: Path) -> None:
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
    file = tmp_path / "kubeconfig"
    file.write_bytes(orjson.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = CliRunner().invoke(app, ["controller", f"--kubeconfig={file}", f"--extender-address={address}"])
    assert said.exit_code == 7
    assert said.stderr == (
        f"error: cannot serve at {address}: address already in use: give another port or address\n"
    )


def test_an_extender_that_others_could_reach_needs_certificates() -> None:
    said = CliRunner().invoke(app, ["controller", "--extender-address=0.0.0.0:8090"])
    assert said.exit_code == 2
    assert "--extender-client-ca" in said.stderr


ALL_THREE = "--extender-tls-cert, --extender-tls-key and --extender-client-ca belong together: give all three"


@pytest.mark.parametrize(
    ("address", "files", "words"),
    [
        (
            "",
            3,
            "certificates are given without --extender-address: give that too, or leave the certificates out",
        ),
        ("8090", 0, "--extender-address '8090' is not HOST:PORT: write it as in 127.0.0.1:8090"),
        ("127.0.0.1:8090", 1, ALL_THREE),
        (
            "127.0.0.1:8090",
            3,
            "can't be used: .*: give PEM files that can be read, with the certificate's key",
        ),
    ],
    ids=["no-address", "no-host", "one-file", "no-certificates"],
)
def test_what_is_wrong_with_the_extenders_address_and_files_is_told_with_what_to_give(
    tmp_path: Path, address: str, files: int, words: str
) -> None:
    given: list[Path | None] = [None, None, None]
    for number in range(files):
        given[number] = tmp_path / f"{number}.pem"
        (tmp_path / f"{number}.pem").write_text("no PEM")

    with pytest.raises(BadParameter, match=words):
        entry(address, *given)
