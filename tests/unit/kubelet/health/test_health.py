"""The health of devices: where it comes from, when it is told, and what the kubelet is told in doubt."""

import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.unit.kubelet.drivers import PortNode, TellingPorts, port

from parley.kube.client import Client
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver import checks
from parley_kubelet.driver.device_driver import DeviceClaim, DeviceNodeDriver
from parley_kubelet.health.monitor import HealthMonitor
from parley_kubelet.health.service import HealthService
from parley_kubelet.hooks import DeviceCondition, Health, HeldClaim
from parley_kubelet.proto import dra_health_v1_pb2
from parley_kubelet.testing.promises import node_claim

WELL = Health(port("port-1"), DeviceCondition.HEALTHY)
ILL = Health(port("port-1"), DeviceCondition.UNHEALTHY, "the cable is out")


@pytest.fixture
def driver() -> TellingPorts:
    return TellingPorts()


@pytest.fixture
def monitor(client: Client, folder: Path, driver: TellingPorts) -> HealthMonitor:
    return HealthMonitor(PortNode(client, folder).plugin(driver))


async def test_a_stream_tells_at_once_and_at_every_change(driver: TellingPorts, monitor: HealthMonitor) -> None:
    driver.told = (WELL,)
    await monitor.poll()
    stream = monitor.reports()
    assert await anext(stream) == (WELL,)
    coming = asyncio.ensure_future(anext(stream))
    await monitor.poll()
    driver.told = (ILL,)
    await monitor.poll()
    assert await coming == (ILL,)


async def test_nothing_is_told_before_the_driver_was_asked(driver: TellingPorts, monitor: HealthMonitor) -> None:
    coming = asyncio.ensure_future(anext(monitor.reports()))
    await asyncio.sleep(0)
    assert not coming.done()
    driver.told = (WELL,)
    await monitor.poll()
    assert await coming == (WELL,)


@pytest.mark.looptime
async def test_what_did_not_change_is_told_again_before_the_kubelet_takes_it_for_unknown(
    driver: TellingPorts, monitor: HealthMonitor
) -> None:
    driver.told = (WELL,)
    await monitor.poll()
    stream = monitor.reports()
    started = asyncio.get_running_loop().time()
    for _ in range(4):
        assert await anext(stream) == (WELL,)
    assert asyncio.get_running_loop().time() - started == pytest.approx(15, abs=1)


async def test_streams_end_with_the_plugin(driver: TellingPorts, monitor: HealthMonitor) -> None:
    driver.told = (WELL,)
    await monitor.poll()
    stream = monitor.reports()
    await anext(stream)
    coming = asyncio.ensure_future(anext(stream, None))
    await asyncio.sleep(0)
    await monitor.end()
    assert await coming is None


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (OSError("no route to the switch"), "no route to the switch"),
        (asyncio.CancelledError(), "driver ports.example.com cancelled its own work"),
    ],
    ids=["raises", "cancels its own work"],
)
async def test_a_driver_that_fails_to_tell_makes_its_devices_unknown_and_is_logged_once(
    driver: TellingPorts, monitor: HealthMonitor, fault: BaseException, told: str
) -> None:
    driver.told = (WELL,)
    await monitor.poll()
    driver.silent = fault
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await monitor.poll()
    (report,) = await anext(monitor.reports())
    assert (report.condition, report.message) == (
        DeviceCondition.UNKNOWN,
        f"ports.example.com failed to report health: {told}",
    )
    assert [log["event"] for log in logs] == ["health is not known", "health of a device changed"]


async def test_the_name_of_a_file_that_is_no_text_is_told(driver: TellingPorts, monitor: HealthMonitor) -> None:
    name = os.fsdecode(b"core." + bytes([255]))
    driver.told = (WELL, Health(port("port-2"), DeviceCondition.UNHEALTHY, f"remove {name}"))
    await monitor.poll()
    answer = await anext(HealthService(monitor, dra_health_v1_pb2).NodeWatchResources(None, None))
    assert [device.message for device in answer.devices] == ["", r"remove core.\udcff"]


@pytest.mark.parametrize("told", [None, (WELL, None), ("port-1",), (Health(port("port-1"), 2),)])  # type: ignore[arg-type]
async def test_a_driver_that_tells_what_is_no_health_ends_nothing(
    driver: TellingPorts, monitor: HealthMonitor, told: Any
) -> None:
    driver.told = (WELL,)
    await monitor.poll()
    driver.told = told
    await monitor.poll()
    (report,) = await anext(monitor.reports())
    assert report.condition is DeviceCondition.UNKNOWN


async def test_a_change_is_logged_and_passed_on(client: Client, folder: Path, driver: TellingPorts) -> None:
    changes: list[None] = []
    monitor = HealthMonitor(PortNode(client, folder).plugin(driver), lambda: changes.append(None))
    with structlog.testing.capture_logs() as logs:
        for told in ((WELL,), (WELL,), (ILL,), (ILL,)):
            driver.told = told
            await monitor.poll()
    assert len(changes) == 2
    assert logs == [
        {
            "event": "health of a device changed",
            "log_level": "warning",
            "driver": "ports.example.com",
            "device": "n1/port-1",
            "health": "unhealthy",
            "reason": "the cable is out",
        }
    ]


# The device driver's own sources: a device node, a check.


def devices(*entries: dict[str, Any]) -> DeviceNodeDriver:
    return DeviceNodeDriver("n1", Configuration.model_validate({"devices": entries}))


def checked(name: str, *command: str, **options: float) -> dict[str, Any]:
    return {"name": name, "model": "m", "check": {"command": command, **options}}


async def told(driver: DeviceNodeDriver, *held: HeldClaim[Any]) -> dict[str, tuple[DeviceCondition, str]]:
    return {health.device.device: (health.condition, health.message) for health in await driver.health(held)}


def make_node(path: Path) -> Path:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device node needs root")
    return path


async def test_a_device_whose_node_disappears_is_ill_until_it_is_back(tmp_path: Path) -> None:
    node = make_node(tmp_path / "gpu")
    driver = devices({"name": "gpu-0", "model": "m", "deviceNodes": [str(node)]})
    assert await told(driver) == {"gpu-0": (DeviceCondition.HEALTHY, "")}
    node.unlink()
    assert await told(driver) == {"gpu-0": (DeviceCondition.UNHEALTHY, f"device node {node} is missing")}
    make_node(node)
    assert await told(driver) == {"gpu-0": (DeviceCondition.HEALTHY, "")}


async def test_a_device_of_a_glob_that_a_claim_holds_is_told_of_when_its_node_is_gone(tmp_path: Path) -> None:
    node = make_node(tmp_path / "gpu-7")
    driver = devices({"glob": f"{tmp_path}/gpu-*", "model": "m"})
    handle = {"devices": [{"pool": "n1", "device": "gpu-7"}]}
    claim: DeviceClaim = node_claim(DeviceNodeDriver, "a", handle, port("gpu-7"))
    prepared = await driver.prepare(claim)
    node.unlink()
    assert await told(driver) == {}
    missing = (DeviceCondition.UNHEALTHY, f"device node {node} is missing")
    assert await told(driver, HeldClaim(claim, prepared.state)) == {"gpu-7": missing}


async def test_a_device_without_node_and_check_is_unknown() -> None:
    assert await told(devices({"name": "licence", "model": "cad"})) == {
        "licence": (DeviceCondition.UNKNOWN, "no device node or check reports its health")
    }


FAILS = (sys.executable, "-c", "print('first'); print('ECC errors: 7'); raise SystemExit(3)")


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (("true",), {}, None),
        (("false",), {}, "check false ended with status 1"),
        (FAILS, {}, f"check {sys.executable} ended with status 3: ECC errors: 7"),
        (("/no/such/check",), {}, "check /no/such/check cannot be started: No such file or directory"),
        (("sleep", "60"), {"timeoutSeconds": 0.2}, "check sleep was not done after 0.2 s"),
    ],
)
async def test_what_a_check_says(command: tuple[str, ...], options: dict[str, float], message: str | None) -> None:
    expected = (DeviceCondition.HEALTHY, "") if message is None else (DeviceCondition.UNHEALTHY, message)
    assert await told(devices(checked("gpu-0", *command, **options))) == {"gpu-0": expected}


async def test_a_check_knows_its_device() -> None:
    script = "import os; raise SystemExit(os.environ['PARLEY_DEVICE'] + ' ' + os.environ['PARLEY_DEVICE_NODES'])"
    entry = checked("gpu-0", sys.executable, "-c", script)
    (found,) = (await told(devices({**entry, "deviceNodes": ["/dev/null", "/dev/zero"]}))).values()
    assert found[1].endswith("ended with status 1: gpu-0 /dev/null /dev/zero")


async def test_a_check_is_run_when_it_is_due_and_not_before(tmp_path: Path) -> None:
    count = tmp_path / "count"
    driver = devices(checked("gpu-0", "sh", "-c", f"echo >> {count}"))
    for _ in range(3):
        await told(driver)
    assert count.stat().st_size == 1


@pytest.mark.parametrize("goes_on", ["; wait", ""])
async def test_a_killed_check_leaves_no_process(tmp_path: Path, goes_on: str) -> None:
    file = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {file}{goes_on}"
    await told(devices(checked("gpu-0", "sh", "-c", script, timeoutSeconds=3)))
    child = int(file.read_text())
    deadline = time.monotonic() + 60
    while _lives(child):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_check_that_the_kernel_holds_delays_no_other_and_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, kill = tmp_path / "started", os.killpg
    hangs = checked("gpu-0", "sh", "-c", f"echo $$ >> {started}; exec sleep 600", timeoutSeconds=0.5)
    driver = devices(hangs, checked("gpu-1", "true"))
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    monkeypatch.setattr(checks, "KILLED", 0.1)
    well, ill = (DeviceCondition.HEALTHY, ""), DeviceCondition.UNHEALTHY
    held = "check sh was killed and does not end: its device may not answer; if that stays, restart the machine"
    async with asyncio.timeout(60):
        assert await told(driver) == {"gpu-0": (ill, "check sh was not done after 0.5 s"), "gpu-1": well}
        for _ in range(2):
            driver._checks._due.clear()
            assert await told(driver) == {"gpu-0": (ill, held), "gpu-1": well}
    (pid,) = map(int, started.read_text().split())
    kill(pid, signal.SIGKILL)
    await driver._checks._unkillable["gpu-0"].wait()
    driver._checks._due.clear()
    monkeypatch.undo()
    assert (await told(driver))["gpu-0"] == (ill, "check sh was not done after 0.5 s"), "it is started again"


async def test_checks_that_take_long_delay_no_report_and_each_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "AT_ONCE", 1)
    monkeypatch.setattr(checks, "PATIENCE", 0.1)
    slow = [checked(f"gpu-{number}", "sleep", "60", timeoutSeconds=0.5) for number in range(3)]
    driver = devices(*slow, {"name": "gpu-3", "model": "m", "deviceNodes": [str(tmp_path / "gone")]})
    first = await told(driver)
    assert first["gpu-0"] == (DeviceCondition.UNKNOWN, "not checked yet")
    assert first["gpu-3"][0] is DeviceCondition.UNHEALTHY
    ill = (DeviceCondition.UNHEALTHY, "check sleep was not done after 0.5 s")
    async with asyncio.timeout(60):
        while {(await told(driver))[f"gpu-{number}"] for number in range(3)} != {ill}:
            driver._checks._due.clear()  # all are due again before the last had its turn
            await asyncio.sleep(0.02)


async def test_a_poll_that_is_given_up_ends_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PATIENCE", 60)
    driver = devices(checked("gpu-0", "sleep", "0.5"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await told(driver)
    assert await told(driver) == {"gpu-0": (DeviceCondition.HEALTHY, "")}


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


async def test_a_device_that_its_check_finds_ill_is_not_offered_to_further_pods() -> None:
    driver = devices(checked("gpu-0", "false"), checked("gpu-1", "true"))
    assert [offer.name for offer in driver.devices()] == ["gpu-0", "gpu-1"]
    await told(driver)
    assert [offer.name for offer in driver.devices()] == ["gpu-1"]


@asynccontextmanager
async def asking(monitor: HealthMonitor) -> AsyncIterator[None]:
    task = asyncio.create_task(monitor.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_driver_is_asked_again_and_again(driver: TellingPorts, monitor: HealthMonitor) -> None:
    driver.health_seconds = 0.01  # type: ignore[misc]
    driver.told = (WELL,)
    async with asking(monitor):
        stream = monitor.reports()
        assert await anext(stream) == (WELL,)
        driver.told = (ILL,)
        assert await anext(stream) == (ILL,)
