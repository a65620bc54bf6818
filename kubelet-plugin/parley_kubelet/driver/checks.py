"""Runs the check commands of devices, each when it is due, and remembers the results.

A command that ends with another status than 0, is killed after its timeout, or cannot be started, is a fault; its
last line of output is the reason. A slow check continues while other results are reported. `device_driver` decides
what follows from a fault.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from parley_kubelet.configuration import Configuration, HealthCheck
from parley_kubelet.driver.devices import NodeDevice, checks
from parley_kubelet.hooks import DeviceCondition, DeviceName, Health

AT_ONCE: Final = 8
"""The most checks that run at the same time."""

PATIENCE: Final = 5.0
"""Seconds to wait for results; later ones are reported the next time."""

KILLED: Final = 2.0
"""Seconds to wait for the end of a killed check. The kernel may hold one for ever if its device does not
answer."""

_LONGEST: Final = 500
"""Characters of a command's output that are reported."""


class Checks:
    """The checks of one configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._checks = checks(configuration)
        self._due: dict[str, float] = {}
        self._faults: dict[str, tuple[str | None, float]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """By device, its running check, or the one that waits for a slot."""
        self._unkillable: dict[str, asyncio.subprocess.Process] = {}
        """By device, a check that was killed but did not end."""

    def has(self, device: str) -> bool:
        """Whether the device has a check."""
        return device in self._checks

    def fault(self, device: str) -> str | None:
        """The fault that the last check found; None if it found none, or no check has ended yet."""
        return self._faults[device][0] if device in self._faults else None

    def health(self, device: DeviceName) -> Health:
        """The device's health by its last check."""
        if device.device not in self._faults:
            return Health(device, DeviceCondition.UNKNOWN, "not checked yet")
        fault, at = self._faults[device.device]
        return Health(
            device, DeviceCondition.HEALTHY if fault is None else DeviceCondition.UNHEALTHY, fault or "", at
        )

    async def run(self, devices: Iterable[NodeDevice]) -> None:
        """Start the checks of these devices that are due. Returns when all have ended, or after `PATIENCE`."""
        self._checks = checks(self._configuration)  # a glob may match a new device
        now = asyncio.get_running_loop().time()
        for device in devices:
            check = self._checks.get(device.name)
            if check is None or device.name in self._under_way or self._due.get(device.name, 0.0) > now:
                continue
            self._due[device.name] = now + check.interval_seconds
            task = self._under_way[device.name] = asyncio.create_task(self._run(device, check))
            task.add_done_callback(partial(self._ended, device.name))
        if self._under_way:
            done, _ = await asyncio.wait(self._under_way.values(), timeout=PATIENCE)
            await asyncio.gather(*done)

    def _ended(self, device: str, _: asyncio.Task[None]) -> None:
        del self._under_way[device]

    async def _run(self, device: NodeDevice, check: HealthCheck) -> None:
        held = self._unkillable.get(device.name)
        if held is not None and held.returncode is None:
            fault: str | None = (
                f"check {check.command[0]} was killed and does not end: its device may not answer; if that stays, "
                "restart the machine"
            )
        else:
            async with self._slots:
                fault = await self._fault(device, check)
        self._faults[device.name] = (fault, time.time())

    async def _fault(self, device: NodeDevice, check: HealthCheck) -> str | None:
        environment = {
            **os.environ,
            "PARLEY_DEVICE": device.name,
            "PARLEY_DEVICE_NODES": " ".join(device.device_nodes),
        }
        program = check.command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *check.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            return f"check {program} cannot be started: {error.strerror}"
        done = False
        try:
            async with asyncio.timeout(check.timeout_seconds):
                output, _ = await process.communicate()
            done = True
        except TimeoutError:
            return f"check {program} was not done after {check.timeout_seconds:g} s"
        finally:
            if not done and not await _kill(process):
                self._unkillable[device.name] = process
        if process.returncode == 0:
            return None
        lines = output.decode(errors="replace").strip().splitlines()
        return f"check {program} ended with status {process.returncode}" + (
            f": {lines[-1][:_LONGEST]}" if lines else ""
        )


async def _kill(process: asyncio.subprocess.Process) -> bool:
    """Kill the check with all processes that it started, which keep its output open. False if it does not end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILLED):
            await process.wait()
    return process.returncode is not None
