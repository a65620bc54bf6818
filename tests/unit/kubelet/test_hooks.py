"""A driver's hooks as the plugin calls them: when, how often, in which order, and what follows from faults."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
import structlog
from pydantic import model_validator
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.kubelet.drivers import DRIVER, Port, PortNode, Ports, PortSettings

from parley.api.resources import BUILTIN_CLAIMS, Resource
from parley.kube.cancelling import CancelledItself
from parley.kube.client import Client
from parley.kube.memory import MemoryServer
from parley_kubelet.claims.preparation import ClaimName, Preparation, ProcessServices, boot_id
from parley_kubelet.hooks import HeldClaim, NodeClaim, NodeDriver, Prepared, Refused
from parley_kubelet.state.checkpoint import Checkpoint, CheckpointEntry
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import allocated_status


@pytest.fixture
def node(client: Client, folder: Path) -> PortNode:
    return PortNode(client, folder)


def recorded(node: PortNode, claim: ClaimName) -> CheckpointEntry | None:
    return Checkpoint(Folder(node.folder / "state"), "n1").read().get(claim.uid)


async def test_a_claim_is_prepared_once_and_unprepared_with_what_prepare_returned(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    first = await plugin.prepare(claim)
    assert first.edits.env == {"PORT": "7"}
    assert await plugin.prepare(claim) == first
    assert node.files() == [f"parley.dev-{DRIVER}-claim-{claim.uid}.json"]
    await plugin.unprepare(claim)
    assert driver.calls == ["prepare a", "unprepare a"]
    assert driver.states == [{"opened": 7}]
    assert (node.files(), recorded(node, claim)) == ([], None)


async def test_the_intention_is_on_the_disk_before_the_driver_is_called(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7, "port-7")
    driver.may_go_on.clear()
    call = asyncio.create_task(node.plugin(driver).prepare(claim))
    await driver.entered.wait()
    entry = recorded(node, claim)
    assert entry is not None
    assert (entry.phase, entry.handle, entry.devices[0].name) == ("preparing", {"number": 7}, "port-7")
    assert node.files() == []
    driver.may_go_on.set()
    await call
    assert (recorded(node, claim) or entry).phase == "prepared"


async def test_a_process_that_died_in_the_middle_is_followed_by_another_prepare(node: PortNode) -> None:
    claim = await died_while_preparing(node)
    driver = Ports()
    assert (await node.plugin(driver).prepare(claim)).phase == "prepared"
    assert driver.calls == ["prepare a"]


async def test_or_by_an_unprepare_that_knows_no_state(node: PortNode) -> None:
    claim = await died_while_preparing(node)
    await node.client.delete(BUILTIN_CLAIMS, claim.name, claim.namespace)
    driver = Ports()
    await node.plugin(driver).unprepare(claim)
    assert (driver.calls, driver.states) == (["unprepare a"], [None])
    assert recorded(node, claim) is None


async def died_while_preparing(node: PortNode) -> ClaimName:
    claim = await node.claim("a", 7)
    driver = Ports()
    driver.may_go_on.clear()
    plugin = node.plugin(driver)
    call = asyncio.create_task(plugin.prepare(claim))
    await driver.entered.wait()
    await plugin.close()
    await asyncio.gather(call, return_exceptions=True)
    return claim


async def test_an_unprepare_that_fails_is_tried_again_with_the_same_state_and_holds_the_device(
    node: PortNode,
) -> None:
    driver = Ports()
    claim, other = await node.claim("a", 7, "port-7"), await node.claim("b", 7, "port-7")
    plugin = node.plugin(driver)
    await plugin.prepare(claim)
    driver.fault = RuntimeError("busy")
    with pytest.raises(RuntimeError, match="busy"):
        await plugin.unprepare(claim)
    with pytest.raises(Refused) as refusal:
        await plugin.prepare(other)
    assert str(refusal.value) == (
        "claim team/b: device='port-7' is still prepared for claim team/a:"
        " wait until the pods that use it are gone from this node"
    )
    driver.fault = None
    await node.plugin(driver).unprepare(claim)
    assert driver.states == [{"opened": 7}]
    await plugin.prepare(other)


async def test_a_pod_that_comes_back_after_half_an_unprepare_is_prepared_anew(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    await plugin.prepare(claim)
    driver.fault = RuntimeError("busy")
    with pytest.raises(RuntimeError):
        await plugin.unprepare(claim)
    driver.fault = None
    await plugin.prepare(claim)
    assert driver.calls == ["prepare a", "unprepare a", "prepare a"]


async def test_after_a_restart_of_the_machine_the_driver_prepares_again(node: PortNode) -> None:
    claim = await node.claim("a", 7)
    await node.plugin(Ports()).prepare(claim)
    for path in (node.folder / "cdi").iterdir():
        path.unlink()
    driver = Ports()
    plugin = node.plugin(driver, boot="second boot")
    assert len(node.files()) == 1
    for _ in range(2):
        await plugin.prepare(claim)
    assert driver.calls == ["prepare a"]
    assert (await node.plugin(driver, boot="second boot").entries())[claim.uid].boot == "second boot"


@pytest.mark.parametrize("boot", ["first boot", "second boot"])
@pytest.mark.parametrize(("number", "device"), [(8, "port-7"), (7, "port-8"), (8, "port-8")])
async def test_what_was_allocated_anew_while_the_node_was_lost_takes_the_place_of_what_was_prepared(
    node: PortNode, number: int, device: str, boot: str
) -> None:
    """The machine was down, or only its Node was deleted, which the kubelet makes again when it is started."""
    claim = await node.claim("a", 7, "port-7")
    await node.plugin(Ports()).prepare(claim)
    await allocate_anew(node, allocated_status("n1", [device], driver=DRIVER, data={"number": number}))
    driver = Ports()
    prepared = await node.plugin(driver, boot=boot).prepare(claim)
    assert (prepared.handle, prepared.edits.env["PORT"]) == ({"number": number}, str(number))
    assert [held.name for held in prepared.devices] == [device]
    assert (driver.calls, driver.states) == (["unprepare a", "prepare a"], [{"opened": 7}])


async def test_a_kubelet_that_was_started_again_finds_what_is_prepared_though_the_claim_cannot_be_read(
    node: PortNode,
) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    before = await plugin.prepare(claim)
    await allocate_anew(node, allocated_status("n2", [], driver=DRIVER, data={"number": 8}))
    assert await plugin.prepare(claim) == before
    await node.client.delete(BUILTIN_CLAIMS, claim.name, claim.namespace)
    assert await plugin.prepare(claim) == before
    assert driver.calls == ["prepare a"]


async def test_what_is_elsewhere_since_the_machine_was_down_is_not_prepared_again(node: PortNode) -> None:
    claim = await node.claim("a", 7)
    await node.plugin(Ports()).prepare(claim)
    await allocate_anew(node, allocated_status("n2", [], driver=DRIVER, data={"number": 7}))
    driver = Ports()
    with pytest.raises(Refused, match="names n2, and this is node 'n1'"):
        await node.plugin(driver, boot="second boot").prepare(claim)
    assert driver.calls == []


async def allocate_anew(node: PortNode, status: dict[str, Any]) -> None:
    for body in ({"allocation": None, "reservedFor": None}, status):
        await node.client.patch(BUILTIN_CLAIMS, "a", {"status": body}, "team", subresource="status")


async def test_a_restart_of_the_plugin_alone_asks_nothing_of_the_driver(node: PortNode) -> None:
    claim = await node.claim("a", 7)
    first = await node.plugin(Ports()).prepare(claim)
    driver = Ports()
    assert await node.plugin(driver).prepare(claim) == first
    assert driver.calls == []


async def test_calls_for_one_claim_are_made_in_their_order(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.may_go_on.clear()
    plugin = node.plugin(driver)
    calls = [asyncio.create_task(work(claim)) for work in (plugin.prepare, plugin.unprepare, plugin.prepare)]
    await driver.entered.wait()
    assert driver.calls == ["prepare a"]
    driver.may_go_on.set()
    await asyncio.gather(*calls)
    assert driver.calls == ["prepare a", "unprepare a", "prepare a"]


async def test_different_claims_are_prepared_at_the_same_time(node: PortNode) -> None:
    driver = Ports()
    claims = [await node.claim(name, number) for number, name in enumerate("abcd")]
    driver.may_go_on.clear()
    plugin = node.plugin(driver)
    calls = [asyncio.create_task(plugin.prepare(claim)) for claim in claims]
    async with asyncio.timeout(60):
        while len(driver.calls) < 4:  # noqa: ASYNC110 - the driver sets no event for the fourth
            await asyncio.sleep(0.01)
    driver.may_go_on.set()
    await asyncio.gather(*calls)
    assert driver.open == {0, 1, 2, 3}


async def test_two_plugins_of_an_update_never_call_for_one_claim_at_the_same_time(node: PortNode) -> None:
    old, new = Ports(), Ports()
    claim = await node.claim("a", 7)
    old.may_go_on.clear()
    first = asyncio.create_task(node.plugin(old).prepare(claim))
    await old.entered.wait()
    second = asyncio.create_task(node.plugin(new).prepare(claim))
    await asyncio.sleep(0.2)
    assert new.calls == []
    old.may_go_on.set()
    assert await first == await second
    assert new.calls == []


async def test_a_call_that_is_given_up_records_nothing_once_the_other_plugin_acts_for_its_claim(
    client: Client, folder: Path
) -> None:
    thread, answers = ThreadPoolExecutor(1), threading.Event()

    def disk_hangs(_: NumberedCall) -> None:
        thread.submit(answers.wait)

    mine = await PortNode(client, folder).claim("a")
    old = PortNode(FaultClient(client, before=disk_hangs), folder).plugin(
        Ports(), limit=0.2, process=ProcessServices(thread)
    )
    new = PortNode(client, folder).plugin(Ports())
    with pytest.raises(Refused, match="is not done after"):
        await old.prepare(mine)
    ending = asyncio.create_task(new.unprepare(mine))
    await asyncio.wait({ending}, timeout=0.3)
    answers.set()
    await asyncio.wrap_future(thread.submit(int))
    await ending
    assert dict(await new.entries()) == {}


async def test_a_driver_that_hangs_is_given_up_in_time_and_asked_again(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.may_go_on.clear()
    plugin = node.plugin(driver, limit=0.2)
    with pytest.raises(Refused) as refusal:
        await plugin.prepare(claim)
    assert str(refusal.value) == (
        f"claim team/a: driver {DRIVER} is not done after 0.2 s:"
        " see the log of parley-kubelet on this node; the kubelet will try again"
    )
    driver.may_go_on.set()
    await plugin.prepare(claim)
    assert driver.calls == ["prepare a", "prepare a"]


async def test_a_driver_says_what_keeps_its_calls_from_ending_or_fails_to(
    node: PortNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.may_go_on.clear()
    plugin = node.plugin(driver, limit=0.2)
    for says, why in ((lambda: "no route to the switch", "no route to the switch"), (lambda: 1 / 0, "its hook ")):
        monkeypatch.setattr(driver, "blocked", says)
        with pytest.raises(Refused, match=rf"is not done after 0.2 s: {why}.*; the kubelet will try again"):
            await plugin.prepare(claim)


async def test_a_timeout_of_the_drivers_own_is_its_own_error(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.fault = TimeoutError("the switch does not answer")
    with pytest.raises(TimeoutError, match="the switch does not answer"):
        await node.plugin(driver).prepare(claim)


async def test_a_call_that_the_kubelet_gave_up_goes_on_to_its_end(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    driver.may_go_on.clear()
    plugin = node.plugin(driver)
    call = asyncio.create_task(plugin.prepare(claim))
    await driver.entered.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await plugin.holds(claim.uid)
    driver.may_go_on.set()
    await plugin.prepare(claim)
    assert driver.calls == ["prepare a"]


async def test_a_claim_is_held_from_the_first_moment_of_a_call_to_the_end_of_unprepare(node: PortNode) -> None:
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    assert not await plugin.holds(claim.uid)
    call = asyncio.create_task(plugin.prepare(claim))
    await asyncio.sleep(0)
    assert await plugin.holds(claim.uid)
    await call
    assert await plugin.holds(claim.uid)
    plugin.released.clear()
    await plugin.unprepare(claim)
    assert not await plugin.holds(claim.uid)
    assert plugin.released.is_set()


class SlowReads(Client):
    """A client whose reads of claims wait until they may go on."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server.client())
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        self.asked.set()
        await self.may_answer.wait()
        return await super().get(resource, name, namespace)


async def test_a_claim_that_the_other_plugin_of_an_update_is_about_to_prepare_is_held(
    node: PortNode, server: MemoryServer, folder: Path
) -> None:
    claim = await node.claim("a", 7)
    slow = SlowReads(server)
    call = asyncio.create_task(PortNode(slow, folder).plugin(Ports()).prepare(claim))
    await slow.asked.wait()
    other = node.plugin(Ports())
    assert recorded(node, claim) is None
    assert await other.holds(claim.uid)
    assert not await other.holds("another")
    slow.may_answer.set()
    await call
    assert await other.holds(claim.uid)


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


def test_this_boot_of_the_machine_has_a_name() -> None:
    assert boot_id() == boot_id() != ""


async def test_closing_twice_is_no_error(node: PortNode) -> None:
    plugin: Preparation = node.plugin(Ports())
    await plugin.close()
    await plugin.close()


async def test_a_hook_that_cancels_its_own_work_has_failed(node: PortNode) -> None:
    """The kubelet's call was cancelled with it, and told nothing."""
    driver, claim = Ports(), await node.claim("a", 7)
    plugin = node.plugin(driver)
    words = f"^driver {driver.name} cancelled its own work$"
    driver.fault = asyncio.CancelledError()
    with pytest.raises(CancelledItself, match=words):
        await plugin.prepare(claim)
    with pytest.raises(CancelledItself, match=words):
        await plugin.unprepare(claim)
    driver.fault = None
    await plugin.unprepare(claim)
    assert not await plugin.entries()
