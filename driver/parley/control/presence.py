"""Which drivers run: those in the controller's process, those that renew a Lease, and those that answer questions.

A Lease counts as long as its renewals are observed: clocks of two machines are not compared. A driver without a
Lease counts as running from an answer until it leaves a question unanswered.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from parley.api.builtin import Lease
from parley.api.names import driver_lease
from parley.api.resources import LEASES
from parley.kube.client import Client, Forbidden, NotFound

_LATE = 2
"""A Lease has expired when it was not renewed for this many times its duration."""


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a driver runs, as far as is known, and a message that says how that is known."""

    running: bool
    message: str


class DriverPresence:
    """Tells whether a driver runs. Drivers have their Leases in `namespace`; `here` names the embedded ones."""

    def __init__(self, client: Client, namespace: str, here: Collection[str]) -> None:
        self._client = client
        self._namespace = namespace
        self._here = frozenset(here)
        self._renewals: dict[str, tuple[str, float]] = {}
        self._answers: dict[str, bool] = {}

    def answered(self, driver: str) -> None:
        """Note that the driver answered a question about a pod."""
        self._answers[driver] = True

    def silent(self, driver: str) -> None:
        """Note that the driver left a question unanswered for too long."""
        self._answers[driver] = False

    async def of(self, driver: str) -> Presence:
        """Whether the driver runs. Raises what a client raises, except for a missing Lease."""
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
