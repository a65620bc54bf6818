"""Runs the check commands of devices, each when it is due, and remembers the results.

A command that ends with another status than 0, is killed by its limit, or cannot be started, is a fault; its last
line of output is the reason. A check that takes long goes on while others' results are reported. What follows from
a fault is left to `device_driver`.
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
"""So many checks run at the same time."""

PATIENCE: Final = 5.0
"""Seconds for which results are waited for; those that come later are reported the next time."""

KILLED: Final = 2.0
"""Seconds that a killed check has to end. The kernel holds one for ever whose device does not answer."""

_LONGEST: Final = 500
"""Characters of a command's output that are reported."""


class Checks:
    """The checks of one configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._checks = checks(configuration)
        self._due: dict[str, float] = {}
        self._faults: dict[str, tuple[str | None, float]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """By device, its check, which may wait for room."""
        self._held: dict[str, asyncio.subprocess.Process] = {}
        """By device, checks that were killed and had not ended."""

    def has(self, device: str) -> bool:
        """Whether the device has a check."""
        return device in self._checks

    def fault(self, device: str) -> str | None:
        """What the last check found; None if nothing, or if there was none yet."""
        return self._faults[device][0] if device in self._faults else None

    def health(self, device: DeviceName) -> Health:
        """The last check as the device's health."""
        if device.device not in self._faults:
            return Health(device, DeviceCondition.UNKNOWN, "not checked yet")
        fault, at = self._faults[device.device]
        return Health(
            device, DeviceCondition.HEALTHY if fault is None else DeviceCondition.UNHEALTHY, fault or "", at
        )

    async def run(self, devices: Iterable[NodeDevice]) -> None:
        """Start the checks of these devices that are due. Returns when all have ended, or after `PATIENCE`."""
        self._checks = checks(self._configuration)  # a device that a glob matches may have come
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
        held = self._held.get(device.name)
        if held is not None and held.returncode is None:
            fault: str | None = (
                f"check {check.command[0]} was killed and does not end: its device may not answer; if that stays, "
                "restart the machine"
            )
        else:
            async with self._room:
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
            if not done and not await _has_ended(process):
                self._held[device.name] = process
        if process.returncode == 0:
            return None
        lines = output.decode(errors="replace").strip().splitlines()
        return f"check {program} ended with status {process.returncode}" + (
            f": {lines[-1][:_LONGEST]}" if lines else ""
        )


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Kill the check with all that it started: what is left of it keeps its output open. False if the kernel does
    not let it end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILLED):
            await process.wait()
    return process.returncode is not None
