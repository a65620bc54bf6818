"""Drivers of others in the plugin: how they are found, configured, and served beside each other."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpc.aio import AioRpcError
from tests.unit.kubelet.drivers import DRIVER, PortSettings, TellingPorts, port

from parley.api.resources import NODES, RESOURCE_SLICES
from parley.kube.client import Client
from parley_kubelet.configuration import Configuration, ConfigurationError, settings_of
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.hooks import DeviceCondition, Health
from parley_kubelet.loading import LoadError, load_driver
from parley_kubelet.plugin import make_drivers, run_plugin
from parley_kubelet.serving.driver_server import GRACE
from parley_kubelet.settings import PluginSettings
from parley_kubelet.testing import Kubelet, allocated_status, create_claim, until

PORTS = "tests.unit.kubelet.test_several_drivers:ServedPorts"
DEVICES = [{"name": "gpu-0", "model": "a100"}]


class ServedPorts(TellingPorts):
    """Ports of which one is ill."""

    hangs = False

    async def prepare(self, claim: Any) -> Any:
        if self.hangs:
            self.may_go_on.clear()
        return await super().prepare(claim)

    async def health(self, held: Any) -> Any:
        return (Health(port("port-1"), DeviceCondition.UNHEALTHY, f"base {self.configured.base}"),)


class Nameless(TellingPorts):
    name = "Not A Name"


@pytest.fixture(autouse=True)
async def node(client: Client) -> None:
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})


@pytest.fixture
def settings(folder: Path) -> PluginSettings:
    return PluginSettings(
        node="n1",
        config=folder / "node.yaml",
        plugins=folder / "plugins",
        registry=folder / "registry",
        cdi=folder / "cdi",
        drivers=("devices", PORTS),
    )


def configuration(**fields: Any) -> Configuration:
    return Configuration.model_validate({"devices": DEVICES, **fields})


@asynccontextmanager
async def running(
    settings: PluginSettings, client: Client, stop: asyncio.Event | None = None, **fields: Any
) -> AsyncIterator[dict[str, Kubelet]]:
    """The plugin in operation, each driver registered with the kubelet."""
    stop = stop or asyncio.Event()
    plugin = asyncio.create_task(run_plugin(settings, configuration(**fields), client, stop))
    try:
        await until(lambda: plugin.done() or len(list(settings.registry.glob("*-reg.sock"))) == 2)
        names = ("device.parley.dev", DRIVER)
        first, second = (Kubelet(settings.registry / f"{name}-reg.sock") for name in names)
        async with first, second:
            yield {"devices": first, "ports": second}
    finally:
        stop.set()
        await plugin


async def test_each_driver_has_a_registration_sockets_and_a_slice_of_its_own(
    settings: PluginSettings, client: Client
) -> None:
    async with running(settings, client) as kubelets:
        assert [kubelet.info.name for kubelet in kubelets.values()] == ["device.parley.dev", DRIVER]
        assert kubelets["ports"].info.endpoint == f"{settings.plugins}/{DRIVER}/dra.sock"
        while len(slices := (await client.list(RESOURCE_SLICES)).items) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    published = {item.spec.driver: [device.name for device in item.spec.devices] for item in slices}
    assert published == {"device.parley.dev": ["gpu-0"], DRIVER: []}


async def test_each_driver_prepares_its_own_claims_with_a_checkpoint_of_its_own(
    settings: PluginSettings, client: Client
) -> None:
    gpu = await create_claim(client, "gpu", allocated_status("n1", ["gpu-0"]))
    ports = allocated_status("n1", ["port-1"], driver=DRIVER, data={"number": 1})
    mine = await create_claim(client, "mine", ports)
    async with running(settings, client) as kubelets:
        assert (await kubelets["devices"].prepare(gpu))["gpu"].error == ""
        answer = (await kubelets["ports"].prepare(mine))["mine"]
        assert (answer.error, [device.device_name for device in answer.devices]) == ("", ["port-1"])
        wrong = (await kubelets["ports"].prepare(gpu))["gpu"].error
        assert wrong.startswith(f"claim team/gpu: status.allocation names device.parley.dev, not {DRIVER}")
    for name in ("device.parley.dev", DRIVER):
        assert (settings.plugins / name / "checkpoint.json").exists()


async def test_hooks_that_hang_in_threads_stop_no_other_driver(
    settings: PluginSettings, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls, answers = list[None](), threading.Event()

    async def health(*_: Any) -> Any:
        polls.append(None)
        await asyncio.to_thread(answers.wait)

    monkeypatch.setattr(ServedPorts, "health", health)
    monkeypatch.setattr(ServedPorts, "health_seconds", 0.01)
    monkeypatch.setattr("parley_kubelet.health.monitor.LIMIT", 0.01)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    gpu = await create_claim(client, "gpu", allocated_status("n1", ["gpu-0"]))
    async with running(settings, client) as kubelets:
        try:
            await until(lambda: len(polls) > 2)
            async with asyncio.timeout(60):
                for _ in range(2):
                    assert (await kubelets["devices"].prepare(gpu))["gpu"].error == ""
                assert (await kubelets["devices"].unprepare(gpu))["gpu"] == ""
        finally:
            answers.set()


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_the_health_of_each_driver_is_told_in_both_versions(
    settings: PluginSettings, client: Client, version: str
) -> None:
    async with running(settings, client, drivers={DRIVER: {"base": 7}}) as kubelets:
        told = await anext(kubelets["ports"].health(version))
        assert told == {"n1/port-1": ("UNHEALTHY", "base 7")}
        (devices,) = (await anext(kubelets["devices"].health(version))).values()
        assert devices == ("UNKNOWN", "no device node or check reports its health")


async def test_open_streams_of_health_end_with_the_plugin_and_do_not_hold_it_up(
    settings: PluginSettings, client: Client
) -> None:
    stop = asyncio.Event()
    async with running(settings, client, stop) as kubelets:
        streams = [kubelets["devices"].health("v1"), kubelets["ports"].health("v1alpha1")]
        for stream in streams:
            await anext(stream)
        stop.set()
        async with asyncio.timeout(GRACE):
            ended = await asyncio.gather(*(anext(stream, None) for stream in streams))
        assert ended == [None, None]


async def test_a_hook_that_goes_on_at_the_end_is_cancelled_and_continued_by_the_next_start(
    settings: PluginSettings, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley_kubelet.serving.driver_server.GRACE", 0.1)
    monkeypatch.setattr(ServedPorts, "hangs", True)
    status = allocated_status("n1", ["port-1"], driver=DRIVER, data={"number": 1})
    claim = await create_claim(client, "mine", status)
    stop = asyncio.Event()
    async with running(settings, client, stop) as kubelets:
        call = asyncio.create_task(kubelets["ports"].prepare(claim))
        file = settings.plugins / DRIVER / "checkpoint.json"
        await until(lambda: file.exists() and b'"phase":"preparing"' in file.read_bytes())
        stop.set()
        outcomes = await asyncio.gather(call, return_exceptions=True)
        assert isinstance(outcomes[0], AioRpcError)
    monkeypatch.setattr(ServedPorts, "hangs", False)
    async with running(settings, client) as kubelets:
        assert (await kubelets["ports"].prepare(claim))["mine"].error == ""


def test_without_the_device_driver_only_the_others_are_made(settings: PluginSettings) -> None:
    (driver,) = make_drivers(replace(settings, drivers=(PORTS,)), configuration(drivers={DRIVER: {"base": 7}}))
    assert (driver.name, driver.node, driver.configured) == (DRIVER, "n1", PortSettings(base=7))


def test_the_device_driver_has_the_name_of_the_option_or_the_file(settings: PluginSettings) -> None:
    only = replace(settings, drivers=("devices",))
    (by_option,) = make_drivers(replace(only, driver="gpu.example.com"), configuration())
    (by_file,) = make_drivers(only, configuration(driver="nic.example.com"))
    assert (by_option.name, by_file.name) == ("gpu.example.com", "nic.example.com")
    assert isinstance(by_file, DeviceNodeDriver)


def test_settings_for_a_driver_that_is_not_served(settings: PluginSettings) -> None:
    with pytest.raises(ConfigurationError) as error:
        make_drivers(settings, configuration(drivers={"port.example.com": {}}))
    assert str(error.value) == (
        f"{settings.config}: drivers['port.example.com']: no driver of that name is in --driver, which has"
        f" device.parley.dev, {DRIVER}: correct the name or remove it"
    )


def test_two_drivers_of_one_name(settings: PluginSettings) -> None:
    with pytest.raises(ConfigurationError, match=r"^--driver: two drivers have the name 'ports\.example\.com'"):
        make_drivers(replace(settings, drivers=(PORTS, PORTS)), configuration())


def test_settings_that_the_driver_does_not_know() -> None:
    given = configuration(drivers={DRIVER: {"bse": 7, "base": "x"}})
    with pytest.raises(ConfigurationError) as error:
        settings_of(given, Path("/c"), DRIVER, PortSettings)
    assert str(error.value).splitlines() == [
        f"/c: drivers['{DRIVER}'].base: Input should be a valid integer, unable to parse string as an integer",
        f"/c: drivers['{DRIVER}'].bse: is not a field of this file: correct its spelling or remove it",
    ]


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("ports", "--driver='ports': write it as module:Class, such as scratch_node:Scratch"),
        (
            "no_such_module:Ports",
            "--driver='no_such_module:Ports': module 'no_such_module' cannot be imported (ModuleNotFoundError: No"
            " module named 'no_such_module'): install it, or set PYTHONPATH to its folder",
        ),
        (
            "json:Ports",
            "--driver='json:Ports': Ports of module 'json' is not a subclass of parley_kubelet.hooks.NodeDriver:"
            " correct the name",
        ),
        (
            "parley_kubelet.hooks:NodeDriver",
            "--driver='parley_kubelet.hooks:NodeDriver': the class has no attribute 'name': add it",
        ),
        (
            "tests.unit.kubelet.test_several_drivers:Nameless",
            "--driver='tests.unit.kubelet.test_several_drivers:Nameless': name='Not A Name': use a lower-case DNS"
            " name of at most 63 characters that starts with a letter, such as device.parley.dev",
        ),
    ],
)
def test_an_option_that_names_no_driver(option: str, why: str) -> None:
    with pytest.raises(LoadError) as error:
        load_driver(option)
    assert str(error.value) == why
