"""Metrics and liveness of the whole plugin, against a kubelet on its sockets."""

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.kubelet.test_plugin import registration_sockets, running
from tests.unit.kubelet.test_plugin import settings as plugin_settings

from parley.kube.client import Client
from parley_kubelet.metrics import GOOD_FOR
from parley_kubelet.proto import registration_v1_pb2 as registration
from parley_kubelet.serving import driver_server, self_check
from parley_kubelet.serving.registration import RegistrationService
from parley_kubelet.serving.self_check import check_sockets
from parley_kubelet.serving.sockets import Sockets, is_served
from parley_kubelet.settings import PluginSettings
from parley_kubelet.testing import Kubelet, allocated_status, create_claim, until

DRIVER = "device.parley.dev"

settings = plugin_settings


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str, seconds: float = 10) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=seconds) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def scraped(port: int) -> dict[tuple[str, ...], float]:
    """Values by the sample's name and the values of its labels."""
    _, text = await asyncio.to_thread(get, port, "/metrics")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def observed(settings: PluginSettings, port: int) -> PluginSettings:
    return replace(settings, metrics_port=port)


async def test_calls_are_counted_by_outcome_and_claims_by_phase(
    observed: PluginSettings, port: int, client: Client
) -> None:
    good = await create_claim(client, "a", allocated_status("n1", ["gpu-0"]))
    bad = await create_claim(client, "b")
    async with running(observed, client) as kubelet:
        await kubelet.prepare(good, bad)
        held = await scraped(port)
        await kubelet.unprepare(good)
        left = await scraped(port)

    assert held["parley_node_call_seconds_count", DRIVER, "prepare", "ok"] == 1
    assert held["parley_node_call_seconds_count", DRIVER, "prepare", "refused"] == 1
    assert held["parley_node_claims", DRIVER, "prepared"] == 1
    assert left["parley_node_call_seconds_count", DRIVER, "unprepare", "ok"] == 1
    assert ("parley_node_claims", DRIVER, "prepared") not in left
    assert left["parley_node_registered", DRIVER] == 1


async def test_a_checkpoint_that_cannot_be_read_is_counted(
    observed: PluginSettings, port: int, client: Client
) -> None:
    claim = await create_claim(client, "a", allocated_status("n1", ["gpu-0"]))
    async with running(observed, client) as kubelet:
        (observed.plugins / DRIVER / "checkpoint.json").write_text("{")
        assert "is damaged" in (await kubelet.prepare(claim))["a"].error
        assert (await scraped(port))["parley_node_checkpoint_errors_total", DRIVER] >= 1


async def test_a_plugin_that_answers_is_alive(observed: PluginSettings, port: int, client: Client) -> None:
    async with running(observed, client):
        assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok")


async def test_a_socket_that_nobody_serves_any_more_ends_liveness_and_is_named(
    observed: PluginSettings, port: int, client: Client
) -> None:
    async with running(observed, client) as kubelet:
        await kubelet.prepare()  # over a connection that stays open, and would be no proof
        path = observed.plugins / DRIVER / "dra.sock"
        path.rename(path.with_name("away"))
        with socket.socket(socket.AF_UNIX) as taken:
            taken.bind(str(path))  # there, so that it is not made again, and nobody listens
            status, text = await asyncio.to_thread(get, port, "/healthz")

    assert status == 503
    assert text.startswith(f"driver {DRIVER}: socket {path}: UNAVAILABLE: ")


@pytest.mark.parametrize("mounted", [False, True])
async def test_a_removed_cdi_folder_ends_liveness_and_a_restart_has_another_with_the_files(
    observed: PluginSettings, port: int, client: Client, mounted: bool
) -> None:
    """In a pod its mount stays, whatever is made in its place on the node; so does an open descriptor here."""
    claim = await create_claim(client, "a", allocated_status("n1", ["gpu-0"]))
    folder = observed.cdi
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    seen = replace(observed, cdi=Path(f"/proc/self/fd/{descriptor}") if mounted else folder)
    try:
        async with running(seen, client) as kubelet:
            await kubelet.prepare(claim)
            assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok")
            shutil.rmtree(folder)
            if mounted:
                folder.mkdir()
            await asyncio.sleep(GOOD_FOR)
            status, text = await asyncio.to_thread(get, port, "/healthz")
    finally:
        os.close(descriptor)
    assert (status, text) == (
        503,
        f"driver {DRIVER}: folder {seen.cdi} was removed on the node: a restart creates it, with the claims'"
        " files\n",
    )
    async with running(observed, client):
        assert len(list(folder.glob("*.json"))) == 1
        assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok")


async def test_a_socket_that_never_answers_ends_liveness_before_the_probe_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_check, "LIMIT", 0.2)
    path = folder / "silent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        assert await check_sockets(Sockets(path, path)) == "; ".join(
            [f"socket {path}: no answer within 0.2 s"] * 2
        )


async def test_after_its_socket_was_removed_and_made_again_the_kubelet_has_to_register_the_plugin_anew(
    observed: PluginSettings, port: int, client: Client
) -> None:
    async with running(observed, client):
        (path,) = registration_sockets(observed)
        path.unlink()
        await until(lambda: is_served(path))
        forgotten = await scraped(port)
        async with Kubelet(path):
            known = await scraped(port)

    assert (forgotten["parley_node_registered", DRIVER], known["parley_node_registered", DRIVER]) == (0, 1)


async def test_a_plugin_is_ready_while_the_kubelet_has_registered_it(
    observed: PluginSettings, port: int, client: Client
) -> None:
    async with running(observed, client) as kubelet:
        assert await asyncio.to_thread(get, port, "/readyz") == (200, "ok")
        await kubelet.notify(registered=False, error="no such version")
        assert await asyncio.to_thread(get, port, "/readyz") == (
            503,
            f"driver {DRIVER}: not registered with the kubelet for 0 s: the kubelet refused it: no such version\n",
        )
        assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok"), "it has a minute"
        await kubelet.notify(registered=True)
        assert await asyncio.to_thread(get, port, "/readyz") == (200, "ok")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_the_kubelet_that_refuses_or_forgets_the_plugin_is_seen() -> None:
    clock = Clock()
    service = RegistrationService(DRIVER, Path("/dra.sock"), health=False, clock=clock)
    accepted, refused = (registration.RegistrationStatus(plugin_registered=it) for it in (True, False))
    clock.now = 5
    assert (service.is_registered, service.missing_seconds()) == (False, 5)
    assert service.fault() == "not registered with the kubelet for 5 s"
    await service.NotifyRegistrationStatus(accepted, None)
    clock.now = 10
    assert (service.is_registered, service.missing_seconds()) == (True, 0)
    await service.NotifyRegistrationStatus(refused, None)
    clock.now = 12
    await service.NotifyRegistrationStatus(refused, None)
    assert (service.is_registered, service.missing_seconds()) == (False, 2)
    await service.NotifyRegistrationStatus(accepted, None)
    service.socket_made()
    clock.now = 20
    assert service.missing_seconds() == 8


async def test_a_plugin_that_the_kubelet_does_not_know_for_a_minute_is_not_alive(
    observed: PluginSettings, port: int, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_server, "UNREGISTERED", 0)  # a minute is over
    async with running(observed, client) as kubelet:
        await kubelet.notify(registered=False, error="no such version")
        assert await asyncio.to_thread(get, port, "/healthz") == (
            503,
            f"driver {DRIVER}: not registered with the kubelet for 0 s: the kubelet refused it: no such version\n",
        )


STUCK = """
import signal, time
from parley_kubelet.main import main
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(60))  # in the thread of the event loop
main()
"""


@asynccontextmanager
async def stuck_plugin(settings: PluginSettings, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A started plugin whose event loop does nothing for a minute after SIGUSR1."""
    settings.config.write_text("devices: [{name: gpu-0, model: a100}]")
    kubeconfig = settings.config.with_name("kubeconfig")
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: u, user: {}}]}"
    )
    options = {
        "--kubeconfig": kubeconfig,
        "--node-name": settings.node,
        "--config": settings.config,
        "--plugins-dir": settings.plugins,
        "--plugins-registry-dir": settings.registry,
        "--cdi-dir": settings.cdi,
        "--metrics-port": port,
    }
    arguments = [str(part) for option in options.items() for part in option]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STUCK, *arguments), env={**os.environ}, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def test_a_plugin_whose_event_loop_is_stuck_does_not_answer_the_probe(
    settings: PluginSettings, port: int
) -> None:
    async with stuck_plugin(settings, port) as process:
        await until(lambda: any(map(is_served, registration_sockets(settings))))
        async with Kubelet(registration_sockets(settings)[0]):
            assert await asyncio.to_thread(get, port, "/healthz") == (200, "ok")
        process.send_signal(signal.SIGUSR1)
        await asyncio.sleep(0.5)
        started = time.monotonic()
        with pytest.raises(TimeoutError):  # the probe's own limit is what ends it
            await asyncio.to_thread(get, port, "/healthz", 2)
        assert time.monotonic() - started < 60
        process.send_signal(signal.SIGTERM)  # nor does it end by itself: the kubelet kills it
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.5)
