"""Whether a driver runs: in the controller, by a Lease that it renews, or by its answers."""

import asyncio
from typing import Any

from tests.unit.control.builders import World, played

from parley.api.names import driver_lease
from parley.api.resources import LEASES
from parley.control.presence import DriverPresence

SYSTEM, OUTSIDE = "parley-system", "disks.example.com"


async def renew(world: World, time: str, holder: str = "pod-1") -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": time}
    body: dict[str, Any] = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "spec": spec}
    name = driver_lease(OUTSIDE)
    if time.endswith("00:00:00.000000Z"):
        await world.admin.create(LEASES, {**body, "metadata": {"name": name}}, SYSTEM)
    else:
        await world.admin.patch(LEASES, name, {"spec": spec}, SYSTEM)


def test_a_driver_of_the_controller_is_there_and_others_say_so_by_their_lease() -> None:
    async def story(world: World) -> None:
        presence = DriverPresence(world.client, SYSTEM, ["here.example.com"])
        assert (await presence.of("here.example.com")).message == "driver here.example.com runs in the controller"
        missing = await presence.of(OUTSIDE)
        assert not missing.running
        assert missing.message == (
            f"driver {OUTSIDE} does not run: it is not in the controller, nobody renews Lease "
            f"{SYSTEM}/{driver_lease(OUTSIDE)}, and no question was answered: start it, or correct driverName"
        )
        await renew(world, "2026-01-01T00:00:00.000000Z")
        assert (await presence.of(OUTSIDE)).running

    played(story)


def test_a_lease_counts_as_long_as_its_renewals_are_seen_whatever_its_clock_says() -> None:
    async def story(world: World) -> None:
        presence = DriverPresence(world.client, SYSTEM, [])
        await renew(world, "1999-01-01T00:00:00.000000Z")
        assert (await presence.of(OUTSIDE)).running
        await asyncio.sleep(29)
        assert (await presence.of(OUTSIDE)).running
        await asyncio.sleep(2)
        assert not (await presence.of(OUTSIDE)).running
        await renew(world, "1999-01-01T00:00:01.000000Z")
        assert (await presence.of(OUTSIDE)).running
        await renew(world, "1999-01-01T00:00:02.000000Z", holder="")
        assert not (await presence.of(OUTSIDE)).running

    played(story)


def test_without_a_lease_a_driver_is_there_from_an_answer_to_a_silence() -> None:
    async def story(world: World) -> None:
        presence = DriverPresence(world.client, SYSTEM, [])
        presence.answered(OUTSIDE)
        assert (await presence.of(OUTSIDE)).message == f"driver {OUTSIDE} answers"
        presence.silent(OUTSIDE)
        assert not (await presence.of(OUTSIDE)).running

    played(story)
