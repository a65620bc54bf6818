"""Which drivers run: in the controller's process, with a Lease that they renew, or by the questions they answer.

A Lease counts as long as its renewals are seen: clocks of two machines are not compared. A driver without a Lease
is there from an answer on, until a question to it stays without one.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from parley.api.builtin import Lease
from parley.api.names import driver_lease
from parley.api.resources import LEASES
from parley.kube.client import Client, Forbidden, NotFound

_LATE = 2
"""A Lease is nobody's when it was not renewed for so many times its duration."""


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a driver runs, as far as is known, and by what."""

    there: bool
    message: str


class DriverPresence:
    """Tells whether a driver runs. `namespace` is where drivers have their Leases, `here` the names of the
    drivers in this process."""

    def __init__(self, client: Client, namespace: str, here: Collection[str]) -> None:
        self._client = client
        self._namespace = namespace
        self._here = frozenset(here)
        self._renewals: dict[str, tuple[str, float]] = {}
        self._answers: dict[str, bool] = {}

    def answered(self, driver: str) -> None:
        """The driver answered a question about a pod."""
        self._answers[driver] = True

    def silent(self, driver: str) -> None:
        """The driver left a question without an answer for too long."""
        self._answers[driver] = False

    async def of(self, driver: str) -> Presence:
        """Whether the driver runs. Raises what a client raises, but for a Lease that is not there."""
        if driver in self._here:
            return Presence(True, f"driver {driver} runs in the controller")
        name = f"{self._namespace}/{driver_lease(driver)}"
        if await self._holds_lease(driver):
            return Presence(True, f"driver {driver} renews Lease {name}")
        if self._answers.get(driver):
            return Presence(True, f"driver {driver} answers")
        message = (
            f"driver {driver} does not run: it is not in the controller, nobody renews Lease {name}, "
            "and no question was answered: start it, or correct driverName"
        )
        return Presence(False, message)

    async def _holds_lease(self, driver: str) -> bool:
        try:
            lease = await self._client.get(LEASES, driver_lease(driver), self._namespace)
        except (NotFound, Forbidden):
            self._renewals.pop(driver, None)
            return False
        return self._is_renewed(driver, lease)

    def _is_renewed(self, driver: str, lease: Lease) -> bool:
        spec, now = lease.spec, asyncio.get_running_loop().time()
        shown = f"{spec.holder_identity} {spec.renew_time}"
        if self._renewals.get(driver, ("", 0.0))[0] != shown:
            self._renewals[driver] = (shown, now)
        since = now - self._renewals[driver][1]
        return bool(spec.holder_identity) and since <= _LATE * max(1, spec.lease_duration_seconds)
