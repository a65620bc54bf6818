"""What earlier runs left for claims that nobody can use: released where no container can have it."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import structlog
from tests.unit.kubelet.drivers import DRIVER, PortNode, Ports

from parley.api.resources import BUILTIN_CLAIMS
from parley.kube.client import Call, Client
from parley_kubelet.claims.orphans import release_orphans
from parley_kubelet.claims.preparation import ClaimName
from parley_kubelet.hooks import Refused
from parley_kubelet.testing import allocated_status


@pytest.fixture
def node(client: Client, folder: Path) -> PortNode:
    return PortNode(client, folder)


async def prepared(node: PortNode) -> ClaimName:
    claim = await node.claim("a", 7)
    await node.plugin(Ports()).prepare(claim)
    return claim


async def gone(node: PortNode, claim: ClaimName) -> None:
    await node.client.delete(BUILTIN_CLAIMS, claim.name, claim.namespace)


async def cleaned(node: PortNode, boot: str) -> tuple[list[str], list[str]]:
    """What the driver was asked for, and what the log tells."""
    driver = Ports()
    with structlog.testing.capture_logs() as logs:
        await release_orphans(node.plugin(driver, boot=boot), node.client)
    return driver.calls, [log["event"] for log in logs if log["event"] != "claim unprepared"]


async def test_a_claim_as_it_was_is_left_alone(node: PortNode) -> None:
    await prepared(node)
    assert await cleaned(node, "second boot") == ([], [])


async def test_after_a_restart_of_the_machine_no_container_has_what_is_held_for_a_claim_that_is_gone(
    node: PortNode,
) -> None:
    await gone(node, await prepared(node))
    assert await cleaned(node, "second boot") == (["unprepare a"], ["orphaned claim unprepared"])
    assert (node.files(), await node.plugin(Ports()).entries()) == ([], {})


async def test_nor_for_one_that_was_made_anew_under_its_name(node: PortNode) -> None:
    await gone(node, await prepared(node))
    await node.claim("a", 8)
    assert (await cleaned(node, "second boot"))[0] == ["unprepare a"]


async def test_nor_for_one_that_is_nobodys(node: PortNode) -> None:
    await prepared(node)
    await reserve(node, None)
    assert (await cleaned(node, "second boot"))[0] == ["unprepare a"]


async def test_nor_for_one_that_is_on_another_node_since(node: PortNode) -> None:
    claim = await prepared(node)
    await reallocate(node, "n2")
    with structlog.testing.capture_logs():
        await release_orphans(node.plugin(Ports(), boot="first boot"), node.client)
    assert claim.uid in await node.plugin(Ports()).entries(), "a container may still have it"
    assert (await cleaned(node, "second boot"))[0] == ["unprepare a"]


async def test_what_is_allocated_on_this_node_again_is_left_to_the_kubelet(node: PortNode) -> None:
    await prepared(node)
    await reallocate(node, "n1")
    assert await cleaned(node, "second boot") == ([], [])


async def reallocate(node: PortNode, place: str) -> None:
    await node.client.patch(
        BUILTIN_CLAIMS, "a", {"status": {"allocation": None, "reservedFor": None}}, "team", subresource="status"
    )
    status = allocated_status(place, [], driver=DRIVER, data={"number": 8})
    await node.client.patch(BUILTIN_CLAIMS, "a", {"status": status}, "team", subresource="status")


async def test_in_the_same_boot_a_container_may_still_have_it(node: PortNode) -> None:
    await gone(node, await prepared(node))
    calls, told = await cleaned(node, "first boot")
    assert (calls, told) == ([], ["claim is gone but prepared: left until the kubelet unprepares it"])
    assert len(node.files()) == 1


async def test_but_not_what_was_never_fully_prepared(node: PortNode) -> None:
    claim = await node.claim("a", 7)
    driver = Ports()
    driver.fault = RuntimeError("no link")
    with pytest.raises(RuntimeError):
        await node.plugin(driver).prepare(claim)
    await gone(node, claim)
    assert await cleaned(node, "first boot") == (["unprepare a"], ["orphaned claim unprepared"])


class SlowAnswer(Client):
    """Lets `meanwhile` happen between an answer and its arrival."""

    def __init__(self, client: Client, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(client)
        self._meanwhile = meanwhile

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if not call.writes:
            await self._meanwhile()
        return answer


async def test_nor_what_the_kubelet_asked_for_while_the_claim_was_looked_at(node: PortNode) -> None:
    claim = await prepared(node)
    reserved = [{"resource": "pods", "name": "next", "uid": "uid-of-next"}]
    await reserve(node, None)
    driver = Ports()
    plugin = node.plugin(driver, boot="second boot")

    async def next_pod() -> None:
        await reserve(node, reserved)
        await plugin.prepare(claim)

    await release_orphans(plugin, SlowAnswer(node.client, next_pod))

    assert driver.calls == ["prepare a"]
    assert (await plugin.entries())[claim.uid].phase == "prepared"
    assert len(node.files()) == 1


async def reserve(node: PortNode, pods: Sequence[object] | None) -> None:
    body = {"status": {"reservedFor": pods}}
    await node.client.patch(BUILTIN_CLAIMS, "a", body, "team", subresource="status")


@pytest.mark.looptime
async def test_a_driver_that_fails_is_asked_again(node: PortNode) -> None:
    await gone(node, await prepared(node))

    class Failing(Ports):
        async def _called(self, what: str) -> None:
            self.calls.append(what)
            if len(self.calls) < 3:
                raise RuntimeError("no link")

    driver = Failing()
    with structlog.testing.capture_logs() as logs:
        await release_orphans(node.plugin(driver, boot="second boot"), node.client)
    assert driver.calls == ["unprepare a"] * 3
    assert [log["event"] for log in logs] == ["orphan not handled"] * 2 + ["orphaned claim unprepared"]
    assert logs[0]["reason"] == "RuntimeError: no link"


async def test_an_orphaned_file_is_removed_with_a_line_in_the_log(node: PortNode) -> None:
    await prepared(node)
    name = "parley.dev-ports.example.com-claim-u0.json"
    (node.folder / "cdi" / name).write_text("{}")
    with structlog.testing.capture_logs() as logs:
        node.plugin(Ports())
    assert [(log["event"], log["uid"]) for log in logs] == [("orphaned CDI specification removed", "u0")]
    assert len(node.files()) == 1


async def test_after_the_kubelet_forgot_a_claim_its_device_is_free_once_the_checkpoint_is_removed(
    node: PortNode,
) -> None:
    """As the runbook says, for a node without pods whose kubelet lost its own record of claims."""
    forgotten = await node.claim("a", 7, "port-7")
    await node.plugin(Ports()).prepare(forgotten)
    await gone(node, forgotten)
    later = await node.claim("b", 7, "port-7")
    assert (await cleaned(node, "first boot"))[1] == [
        "claim is gone but prepared: left until the kubelet unprepares it"
    ]
    with pytest.raises(Refused, match="device='port-7' is still prepared for claim team/a"):
        await node.plugin(Ports()).prepare(later)
    (node.folder / "state" / "checkpoint.json").unlink()
    with structlog.testing.capture_logs():
        plugin = node.plugin(Ports())
    assert node.files() == []
    await plugin.prepare(later)
    assert list(await plugin.entries()) == [later.uid]
