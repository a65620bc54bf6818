"""Handles, parameters and states that a driver does not understand, and devices that claims share."""

import asyncio
from typing import Any, ClassVar

import pytest
import structlog
from pydantic import model_validator
from tests.unit.kubelet.checkpoints import recorded
from tests.unit.kubelet.drivers import DRIVER, Port, PortNode, Ports, PortSettings

from parley_kubelet.hooks import HeldClaim, NodeClaim, NodeDriver, Prepared, Refused


async def test_a_handle_that_fails_its_schema(node: PortNode) -> None:
    claim = await node.claim("a", data={"number": "seven"})
    driver = Ports()
    with pytest.raises(Refused) as refusal:
        await node.plugin(driver).prepare(claim)
    assert str(refusal.value) == (
        "claim team/a: status.allocation.devices.config.opaque.parameters.number: Input should be a valid"
        " integer, unable to parse string as an integer: run versions of the embedded driver and in"
        " parley-kubelet that belong together"
    )
    assert (driver.calls, recorded(node, claim)) == ([], None)


class FasterPort(Port):
    speed: int


class NewPorts(Ports):
    """A version that no longer understands the old handles."""

    handle = FasterPort  # type: ignore[assignment]


@pytest.mark.parametrize("data", [{"password": "s3cret"}, {"number": "s3cret"}])
async def test_what_is_in_a_handle_is_told_nobody(node: PortNode, data: dict[str, Any]) -> None:
    """A refusal is logged, and is an event of the pod."""
    claim = await node.claim("a", data=data)
    with pytest.raises(Refused, match=r"opaque\.parameters\.number: ") as refusal:
        await node.plugin(Ports()).prepare(claim)
    assert "s3cret" not in str(refusal.value)


async def test_a_version_that_does_not_understand_an_older_handle_says_so_and_keeps_it(node: PortNode) -> None:
    claim = await node.claim("a", 7)
    await node.plugin(Ports()).prepare(claim)
    plugin = node.plugin(NewPorts())
    with pytest.raises(Refused) as refusal:
        await plugin.unprepare(claim)
    assert str(refusal.value) == (
        "claim team/a: the handle in the checkpoint: handle.speed: Field required:"
        " start the version of the driver again that prepared the claim"
    )
    with structlog.testing.capture_logs() as logs:
        assert await plugin.held() == ()
    assert [log["event"] for log in logs] == ["entry left out"]
    assert recorded(node, claim) is not None


class Forgetful(Ports):
    """Returns a state that is not JSON."""

    async def prepare(self, claim: NodeClaim[Any]) -> Prepared:
        return Prepared(state={"at": object()})


async def test_a_state_that_is_not_json(node: PortNode) -> None:
    claim = await node.claim("a", 7)
    with pytest.raises(
        Refused, match=r"^claim team/a: the driver returned a state that is not JSON .*: correct the driver$"
    ):
        await node.plugin(Forgetful()).prepare(claim)


class Crowded(Ports):
    """Lets two claims share a device."""

    def admit(self, claim: NodeClaim[Any], rivals: Any) -> None:
        if len(rivals) > 1:
            raise Refused("two have it")


async def test_who_competes_for_a_device_is_told_to_the_driver_one_after_the_other(node: PortNode) -> None:
    claims = [await node.claim(name, 1, "port-1") for name in "abc"]
    apart = await node.claim("d", 2, "port-2")
    outcomes = await asyncio.gather(*map(node.plugin(Crowded()).prepare, [*claims, apart]), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes if isinstance(outcome, Refused)] == ["two have it"]
    assert not isinstance(outcomes[-1], Exception)


class CountedPort(Port):
    """`conversions` are the numbers of those that were made of what a claim hands over."""

    conversions: ClassVar[list[int]] = []

    @model_validator(mode="after")
    def _count(self) -> "CountedPort":
        self.conversions.append(self.number)
        return self


class Roomy(Ports):
    """Has one device for any number of claims, and looks at none of them."""

    handle = CountedPort

    def admit(self, claim: NodeClaim[Any], rivals: Any) -> None:
        """All are admitted."""


async def test_a_driver_that_lets_all_share_a_device_has_none_of_thousands_converted(node: PortNode) -> None:
    plugin = node.plugin(Roomy())
    for number in range(20):
        await plugin.prepare(await node.claim(f"c{number}", number, "the-disk"))
    last = await node.claim("last", 99, "the-disk")
    CountedPort.conversions.clear()
    await plugin.prepare(last)
    assert set(CountedPort.conversions) == {99}


async def test_what_a_driver_does_not_do(node: PortNode) -> None:
    class Bare(NodeDriver[Port, PortSettings]):
        name = DRIVER
        handle = Port
        settings = PortSettings

    driver = Bare("n1", PortSettings())
    assert not driver.tells_health()
    assert driver.devices() == ()
    claim = NodeClaim("team", "a", "u", (), Port(number=1))
    for work in (driver.prepare(claim), driver.unprepare(HeldClaim(claim, None)), driver.health(())):
        with pytest.raises(NotImplementedError):
            await work
