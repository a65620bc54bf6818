"""The whole plugin against a kubelet on its sockets, and an API server in memory."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from parley.api.resources import BUILTIN_CLAIMS, NODES, RESOURCE_SLICES, Resource
from parley.kube.client import Client
from parley.kube.memory import MemoryServer
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.configuration import Configuration, ConfigurationError
from parley_kubelet.driver.device_driver import DeviceClaim, DeviceNodeDriver
from parley_kubelet.hooks import Prepared, Refused
from parley_kubelet.plugin import run_plugin
from parley_kubelet.proto import dra_v1_pb2 as dra
from parley_kubelet.serving.service import DraService
from parley_kubelet.serving.sockets import is_served
from parley_kubelet.settings import PluginSettings
from parley_kubelet.state.checkpoint import CheckpointError
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import Kubelet, allocated_status, create_claim, offered_status, until

CONFIGURATION = Configuration.model_validate(
    {"devices": [{"name": "gpu-0", "model": "a100"}, {"name": "gpu-1", "model": "a100"}]}
)


@pytest.fixture
def settings(folder: Path) -> PluginSettings:
    return PluginSettings(
        node="n1",
        config=folder / "devices.yaml",
        plugins=folder / "plugins",
        registry=folder / "registry",
        cdi=folder / "cdi",
    )


@asynccontextmanager
async def running(
    settings: PluginSettings, client: Client, stop: asyncio.Event | None = None
) -> AsyncIterator[Kubelet]:
    """The plugin in operation, registered with a kubelet."""
    stop = stop or asyncio.Event()
    plugin = asyncio.create_task(run_plugin(settings, CONFIGURATION, client, stop))
    try:
        await until(lambda: plugin.done() or registration_sockets(settings) != [])
        async with Kubelet(registration_sockets(settings)[0]) as kubelet:
            yield kubelet
    finally:
        stop.set()
        await plugin


def registration_sockets(settings: PluginSettings) -> list[Path]:
    """Where the kubelet would find plugins."""
    return list(settings.registry.glob("*-reg.sock"))


def sockets(settings: PluginSettings) -> list[str]:
    return [path.name for path in (*settings.plugins.rglob("*.sock"), *registration_sockets(settings))]


def specifications(settings: PluginSettings) -> list[Path]:
    """What the container runtime would read."""
    return list(settings.cdi.glob("*.json"))


async def test_the_kubelet_is_told_who_serves_where(settings: PluginSettings, client: Client) -> None:
    async with running(settings, client) as kubelet:
        assert kubelet.info.type == "DRAPlugin"
        assert kubelet.info.name == "device.parley.dev"
        assert kubelet.info.endpoint == f"{settings.plugins}/device.parley.dev/dra.sock"
        assert list(kubelet.info.supported_versions) == [
            "v1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]


async def test_the_sockets_of_the_pod_before_that_was_killed_are_gone(
    settings: PluginSettings, client: Client
) -> None:
    pods = [f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2)]
    killed = settings.registry / f"device.parley.dev-{pods[0]}-reg.sock"
    killed.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(killed))
    mine = replace(settings, instance=pods[1])
    stop = asyncio.Event()
    plugin = asyncio.create_task(run_plugin(mine, CONFIGURATION, client, stop))
    await until(lambda: is_served(settings.registry / f"device.parley.dev-{pods[1]}-reg.sock"))
    assert not killed.exists()
    stop.set()
    await plugin


async def test_a_refused_registration_is_logged_and_the_plugin_stays(
    settings: PluginSettings, client: Client
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running(settings, client) as kubelet:
            await kubelet.notify(registered=False, error="no such version")
            await kubelet.notify(registered=True)
    assert {
        "event": "the kubelet refused the plugin",
        "driver": "device.parley.dev",
        "reason": "no such version",
        "log_level": "error",
    } in logs


async def test_two_claims_in_a_call(settings: PluginSettings, client: Client) -> None:
    first = await create_claim(client, "a", allocated_status("n1", ["gpu-0"]))
    second = await create_claim(client, "b", offered_status("n1", ["gpu-1"]))
    async with running(settings, client) as kubelet:
        answers = await kubelet.prepare(first, second)
        for claim, device in ((first, "gpu-0"), (second, "gpu-1")):
            answer = answers[claim.metadata.name]
            assert answer.error == ""
            (prepared,) = answer.devices
            assert list(prepared.request_names) == ["exclusive"]
            assert (prepared.pool_name, prepared.device_name) == ("n1", device)
            id_ = f"device.parley.dev/claim={claim.metadata.uid}"
            assert list(prepared.cdi_device_ids) == [f"{id_}_{device}", id_]
            assert not prepared.HasField("share_id")
        assert len(specifications(settings)) == 2
        assert await kubelet.unprepare(first, second) == {"a": "", "b": ""}
        assert specifications(settings) == []


async def test_a_claim_that_fails_does_not_hinder_the_others(settings: PluginSettings, client: Client) -> None:
    good = await create_claim(client, "a", allocated_status("n1", ["gpu-0"]))
    bad = await create_claim(client, "b")
    async with running(settings, client) as kubelet:
        answers = await kubelet.prepare(good, bad)
    assert (answers["a"].error, len(answers["a"].devices)) == ("", 1)
    assert list(answers["b"].devices) == []
    assert answers["b"].error == (
        "claim team/b: status.allocation is not set: wait until parley-controller has allocated it"
    )


class Failing(DeviceNodeDriver):
    """Fails as it is told."""

    faults: tuple[Exception, ...] = ()

    async def prepare(self, claim: DeviceClaim) -> Prepared:
        fault, *rest = self.faults
        self.faults = tuple(rest)
        raise fault


async def errors_told(driver: Failing, client: Client, tmp_path: Path) -> list[str]:
    """What the kubelet is told of each of the driver's faults, about the same claim."""
    claim = await create_claim(client, "a", allocated_status("n1", ["gpu-0"]))
    state, cdi = Folder(tmp_path / "state"), Folder(tmp_path / "cdi")
    service = DraService(Preparation(driver, client, state=state, cdi=cdi, boot="b1"))
    meta = claim.metadata
    request = dra.NodePrepareResourcesRequest(
        claims=[dra.Claim(namespace=meta.namespace, name=meta.name, uid=meta.uid)]
    )
    calls = len(driver.faults)
    return [(await service.NodePrepareResources(request, None)).claims[meta.uid].error for _ in range(calls)]


async def test_why_a_call_failed_is_told_per_claim(client: Client, tmp_path: Path) -> None:
    driver = Failing("n1", CONFIGURATION)
    driver.faults = (Refused("the port is down: plug it in"), ZeroDivisionError("a defect"), TimeoutError())
    told = await errors_told(driver, client, tmp_path)
    assert told == [
        "claim team/a: the port is down: plug it in",
        "claim team/a: unexpected ZeroDivisionError: see the log of parley-kubelet on this node",
        "claim team/a: unexpected TimeoutError: see the log of parley-kubelet on this node",
    ]


async def test_a_reason_with_the_name_of_a_file_that_is_no_text_is_told(client: Client, tmp_path: Path) -> None:
    driver, name = Failing("n1", CONFIGURATION), os.fsdecode(b"/data/core." + bytes([255]))
    driver.faults = (Refused(f"remove {name}"), PermissionError(1, "Operation not permitted", name))
    told = await errors_told(driver, client, tmp_path)
    assert told == [
        r"claim team/a: remove /data/core.\udcff",
        r"claim team/a: /data/core.\udcff: Operation not permitted: check the node's disk; the kubelet will try"
        " again",
    ]


async def test_a_plugin_that_was_restarted_knows_what_it_prepared(
    settings: PluginSettings, client: Client
) -> None:
    claim = await create_claim(client, "a", allocated_status("n1", ["gpu-0"]))
    async with running(settings, client) as kubelet:
        before = await kubelet.prepare(claim)
    async with running(settings, client) as kubelet:
        assert await kubelet.prepare(claim) == before


async def test_devices_are_published_and_stay_so(
    settings: PluginSettings, server: MemoryServer, client: Client
) -> None:
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    before = server.resource_version
    async with running(settings, client):
        await until(lambda: server.resource_version > before)
    (slice_,) = (await client.list(RESOURCE_SLICES)).items
    assert [device.name for device in slice_.spec.devices] == ["gpu-0", "gpu-1"]


async def test_nothing_is_published_before_the_kubelet_took_the_plugin(
    settings: PluginSettings, server: MemoryServer, client: Client
) -> None:
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    stop = asyncio.Event()
    before = server.resource_version
    plugin = asyncio.create_task(run_plugin(settings, CONFIGURATION, client, stop))
    await until(lambda: registration_sockets(settings) != [])
    kubelet = Kubelet(registration_sockets(settings)[0])
    await kubelet.notify(registered=False, error="not yet")
    assert server.resource_version == before
    async with kubelet:
        await until(lambda: server.resource_version > before)
    stop.set()
    await plugin


class SlowServer(Client):
    """A client whose reads of claims wait until they may go on."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server.client())
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        if resource is BUILTIN_CLAIMS:
            self.asked.set()
            await self.may_answer.wait()
        return await super().get(resource, name, namespace)


async def test_a_call_in_progress_is_answered_before_the_plugin_ends(
    settings: PluginSettings, server: MemoryServer
) -> None:
    slow = SlowServer(server)
    claim = await create_claim(slow, "a", allocated_status("n1", ["gpu-0"]))
    stop = asyncio.Event()
    async with running(settings, slow, stop) as kubelet:
        call = asyncio.create_task(kubelet.prepare(claim))
        await slow.asked.wait()
        stop.set()
        await until(lambda: sockets(settings) == [])
        slow.may_answer.set()
        assert (await call)["a"].error == ""
    assert len(specifications(settings)) == 1


async def test_no_socket_stays_behind(settings: PluginSettings, client: Client) -> None:
    async with running(settings, client):
        assert sockets(settings) == ["dra.sock", "device.parley.dev-reg.sock"]
    assert sockets(settings) == []


async def test_a_plugin_over_a_damaged_checkpoint_does_not_register(
    settings: PluginSettings, client: Client
) -> None:
    state = settings.plugins / "device.parley.dev"
    state.mkdir(parents=True)
    (state / "checkpoint.json").write_bytes(b"{")
    with pytest.raises(CheckpointError, match="is damaged"):
        await run_plugin(settings, CONFIGURATION, client, asyncio.Event())
    assert not settings.registry.exists()


async def test_a_file_for_another_driver(settings: PluginSettings, client: Client) -> None:
    configuration = Configuration.model_validate({"driver": "gpu.example.com"})
    mine = PluginSettings(
        "n1", settings.config, settings.plugins, settings.registry, settings.cdi, driver="device.parley.dev"
    )
    with pytest.raises(ConfigurationError) as error:
        await run_plugin(mine, configuration, client, asyncio.Event())
    assert str(error.value) == (
        f"{settings.config}: driver='gpu.example.com' differs from --driver-name='device.parley.dev':"
        " leave one of them out"
    )


async def test_a_disk_that_fails_is_told_per_claim(settings: PluginSettings, client: Client) -> None:
    claim = await create_claim(client, "a", allocated_status("n1", ["gpu-0"]))
    async with running(settings, client) as kubelet:
        path = settings.cdi / f"parley.dev-device.parley.dev-claim-{claim.metadata.uid}.json"
        path.mkdir()
        answers = await kubelet.prepare(claim)
    assert answers["a"].error == (
        f"claim team/a: {path}: Is a directory: check the node's disk; the kubelet will try again"
    )
