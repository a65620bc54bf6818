"""The kit in one process with the driver of seats, in virtual time."""

from collections.abc import Sequence

from tests.unit.conformance.seats import Seats
from tests.unit.conformance.seats_objects import NAME

from parley.api.resources import NODES
from parley.conformance.checks import CHECKS
from parley.conformance.results import Check, CheckResult
from parley.conformance.running import prepare, run
from parley.conformance.stage import Patience, Scene
from parley.conformance.subject import NODE_NAMES, Subject
from parley.conformance.traffic import DriverTraffic
from parley.kube.memory import MemoryServer
from parley.simulate import virtual_time
from parley.simulate.objects import Manifest


def nodes() -> tuple[Manifest, ...]:
    return tuple(Manifest("", NODES, None, name, {"metadata": {"name": name}}) for name in NODE_NAMES)


SUBJECT = Subject(NAME, {"driverName": NAME, "parameters": {"seats": 2}}, {"seats": 1}, NODE_NAMES, nodes())


def results(broken: str = "", checks: Sequence[Check] = CHECKS) -> list[CheckResult]:
    """What the kit finds out about the driver that breaks that rule."""

    async def main() -> list[CheckResult]:
        client = MemoryServer().client()
        traffic = DriverTraffic(client)
        driver = Seats(traffic, broken)
        await prepare(client, SUBJECT)
        await driver.start()
        try:
            scene = Scene(client, traffic, SUBJECT, driver, Patience(5, 1.5))
            return [result async for result in run(scene, checks)]
        finally:
            await driver.kill()

    return virtual_time.run(main())
