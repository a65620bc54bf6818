"""How scenarios end: all is deleted, and nothing of it is left."""

from tests.unit.scheduler.conftest import World

from parley.api.resources import CLAIMS


async def nothing_is_left(world: World) -> None:
    """No claim, mirror or allocation, by the API and by what the controller remembers."""
    assert not await world.mirrors()
    assert not (await world.client.list(CLAIMS)).items
    assert len(world.ledger) == 0
