"""Preparing and unpreparing claims: idempotent over restarts and crashes, and refusals word by word."""

import asyncio
import errno
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, NODES, Resource
from parley.kube.client import Client, Forbidden, OutcomeUnknown
from parley.kube.memory import MemoryServer
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.hooks import Refused
from parley_kubelet.state.checkpoint import CheckpointError
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import allocated_status, create_claim, offered_status

DEVICES = (
    {"name": "gpu-0", "model": "a100", "deviceNodes": ["/dev/null"]},
    {"name": "gpu-1", "model": "a100"},
    {"name": "gpu-2", "model": "l4", "slices": 2},
)


class FullDisk(Folder):
    """A folder on a disk without space."""

    def write(self, name: str, data: bytes, mode: int = 0o600, *, flush: bool = True) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path / name))


class Node:
    """A node's folders; each call of `plugin` is a new start of the plugin over them."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.state = folder / "state"
        self.cdi = folder / "cdi"

    def plugin(
        self,
        *,
        devices: Iterable[dict[str, Any]] = DEVICES,
        state: type[Folder] = Folder,
        cdi: type[Folder] = Folder,
        client: Client | None = None,
        boot: str = "first boot",
        name: str = "n1",
    ) -> Preparation:
        preparation = Preparation(
            DeviceNodeDriver(name, Configuration.model_validate({"devices": list(devices)})),
            client or self.client,
            state=state(self.state),
            cdi=cdi(self.cdi),
            boot=boot,
        )
        preparation.restore()
        return preparation

    def specifications(self) -> dict[str, Any]:
        """What a container of each claim gets, by claim UID."""
        contents = [orjson.loads(path.read_bytes()) for path in self.cdi.glob("*.json")]
        return {content["devices"][0]["name"]: content["devices"][0]["containerEdits"] for content in contents}


@pytest.fixture
def node(client: Client, folder: Path) -> Node:
    return Node(client, folder)


def name_of(claim: BuiltinClaim) -> ClaimName:
    return ClaimName(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


async def allocated(node: Node, name: str, *devices: str, shared: bool = False) -> ClaimName:
    return name_of(await create_claim(node.client, name, allocated_status("n1", devices, shared=shared)))


async def test_a_claim_is_prepared_with_its_devices(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-0", "gpu-1")
    prepared = await node.plugin().prepare(claim)
    assert [(result.request, result.pool, result.device) for result in prepared.results] == [
        ("exclusive", "n1", "gpu-0"),
        ("exclusive", "n1", "gpu-1"),
    ]
    assert node.specifications() == {
        claim.uid: {
            "env": ["PARLEY_DEVICE_GPU_0=a100", "PARLEY_DEVICE_GPU_1=a100"],
            "deviceNodes": [{"path": "/dev/null"}],
        }
    }


async def test_a_placeholder_is_answered_with_the_devices_behind_it(node: Node) -> None:
    claim = name_of(await create_claim(node.client, "a", offered_status("n1", ["gpu-1"])))
    prepared = await node.plugin().prepare(claim)
    assert [(result.pool, result.device) for result in prepared.results] == [("n1", "gpu-1")]
    assert node.specifications() == {claim.uid: {"env": ["PARLEY_DEVICE_GPU_1=a100"]}}


async def test_prepared_again_after_a_restart_without_the_api(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-0")
    first = await node.plugin().prepare(claim)
    await node.client.delete(BUILTIN_CLAIMS, claim.name, claim.namespace)
    assert await node.plugin(devices=()).prepare(claim) == first


async def test_a_claim_of_a_zone_is_prepared_while_the_node_is_in_it_and_stays_when_that_leaves(
    node: Node,
) -> None:
    status = allocated_status("n1", ["gpu-0"])
    needed = {"key": "zone", "operator": "In", "values": ["a"]}
    status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [needed]}]}
    claim = name_of(await create_claim(node.client, "a", status))
    with pytest.raises(Refused) as unknown:
        await node.plugin().prepare(claim)
    assert str(unknown.value) == (
        f"claim {claim}: the labels of node n1 cannot be read: there is no such Node: the kubelet will try again"
    )
    await node.client.create(NODES, {"metadata": {"name": "n1", "labels": {"zone": "b"}}})
    with pytest.raises(Refused, match="selects nodes by labels that node 'n1' does not have"):
        await node.plugin().prepare(claim)
    await node.client.patch(NODES, "n1", {"metadata": {"labels": {"zone": "a"}}})
    prepared = await node.plugin().prepare(claim)

    await node.client.patch(NODES, "n1", {"metadata": {"labels": {"zone": "b"}}})

    assert await node.plugin().prepare(claim) == prepared


async def test_specifications_are_back_after_a_restart_of_the_machine(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-0")
    await node.plugin().prepare(claim)
    before = node.specifications()
    for path in node.cdi.iterdir():
        path.unlink()
    node.plugin()
    assert node.specifications() == before


async def test_a_specification_that_somebody_removed_is_back_with_the_next_call(node: Node) -> None:
    plugin = node.plugin()
    claim = await allocated(node, "a", "gpu-0")
    await plugin.prepare(claim)
    before = node.specifications()
    for path in node.cdi.iterdir():
        path.unlink()
    await plugin.prepare(claim)
    assert node.specifications() == before


async def test_unpreparing_gives_the_device_to_the_next_claim(node: Node) -> None:
    first, second = await allocated(node, "a", "gpu-0"), await allocated(node, "b", "gpu-0")
    await node.plugin().prepare(first)
    await node.client.delete(BUILTIN_CLAIMS, first.name, first.namespace)
    await node.plugin().unprepare(first)
    await node.plugin().prepare(second)
    assert list(node.specifications()) == [second.uid]


async def test_unpreparing_again_and_what_was_never_prepared(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-0")
    plugin = node.plugin()
    await plugin.prepare(claim)
    for _ in range(2):
        await plugin.unprepare(claim)
    await plugin.unprepare(ClaimName("team", "unknown", "u0"))
    assert node.specifications() == {}
    assert node.plugin().restore() == {}


async def test_an_intention_that_cannot_be_recorded_takes_nothing(node: Node) -> None:
    first, second = await allocated(node, "a", "gpu-0"), await allocated(node, "b", "gpu-0")
    with pytest.raises(OSError, match="No space left"):
        await node.plugin(state=FullDisk).prepare(first)
    assert node.specifications() == {}
    await node.plugin().prepare(second)
    assert list(node.specifications()) == [second.uid]


async def test_a_device_that_a_crash_left_half_prepared_stays_taken_and_the_next_call_finishes(
    node: Node,
) -> None:
    first, second = await allocated(node, "a", "gpu-0"), await allocated(node, "b", "gpu-0")
    with pytest.raises(OSError, match="No space left"):
        await node.plugin(cdi=FullDisk).prepare(first)
    restarted = node.plugin()
    with pytest.raises(Refused, match="still prepared for claim team/a"):
        await restarted.prepare(second)
    await restarted.prepare(first)
    assert list(node.specifications()) == [first.uid]


async def test_what_a_crash_left_half_prepared_can_be_unprepared(node: Node) -> None:
    first, second = await allocated(node, "a", "gpu-0"), await allocated(node, "b", "gpu-0")
    with pytest.raises(OSError, match="No space left"):
        await node.plugin(cdi=FullDisk).prepare(first)
    await node.plugin().unprepare(first)
    assert node.specifications() == {}
    await node.plugin().prepare(second)


async def test_a_claim_that_is_allocated_anew_on_the_node_after_a_crash_gets_the_new_device(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-0")
    with pytest.raises(OSError, match="No space left"):
        await node.plugin(cdi=FullDisk).prepare(claim)
    cleared = {"status": {"allocation": None, "reservedFor": None}}
    await node.client.patch(BUILTIN_CLAIMS, "a", cleared, "team", subresource="status")
    anew = {"status": allocated_status("n1", ["gpu-1"])}
    await node.client.patch(BUILTIN_CLAIMS, "a", anew, "team", subresource="status")
    prepared = await node.plugin().prepare(claim)
    assert [device.name for device in prepared.devices] == ["gpu-1"]
    await node.plugin().prepare(await allocated(node, "b", "gpu-0"))


async def test_a_crash_while_unpreparing_keeps_the_device_until_it_is_done(node: Node) -> None:
    first, second = await allocated(node, "a", "gpu-0"), await allocated(node, "b", "gpu-0")
    await node.plugin().prepare(first)
    with pytest.raises(OSError, match="No space left"):
        await node.plugin(state=FullDisk).unprepare(first)
    with pytest.raises(Refused, match="still prepared for claim team/a"):
        await node.plugin().prepare(second)
    await node.plugin().unprepare(first)
    await node.plugin().prepare(second)


async def test_a_claim_whose_specification_cannot_be_written_is_not_prepared(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-0")
    with pytest.raises(OSError, match="No space left"):
        await node.plugin(cdi=FullDisk).prepare(claim)
    assert [entry.phase for entry in node.plugin().restore().values()] == ["preparing"]


@pytest.mark.parametrize("shared", [False, True])
async def test_a_node_that_has_another_name_now_still_knows_who_has_its_devices(node: Node, shared: bool) -> None:
    """Its kubelet was started with another name: what ran under the old one may run still."""
    device = "gpu-2" if shared else "gpu-0"
    first = await allocated(node, "a", device, shared=shared)
    await node.plugin().prepare(first)
    second = name_of(await create_claim(node.client, "b", allocated_status("n2", [device])))
    plugin = node.plugin(name="n2")
    with pytest.raises(Refused, match=f"claim team/b: device='{device}' is still prepared for claim team/a"):
        await plugin.prepare(second)
    await plugin.unprepare(first)
    await plugin.prepare(second)


async def test_what_an_earlier_plugin_prepared_without_the_nodes_name_is_held_too(node: Node) -> None:
    first, second = await allocated(node, "a", "gpu-0"), await allocated(node, "b", "gpu-0")
    await node.plugin().prepare(first)
    file = node.state / "checkpoint.json"
    (claim,) = orjson.loads(file.read_bytes())["claims"]
    assert claim.pop("node") == "n1"
    checksum = f"sha256:{sha256(orjson.dumps([claim], option=orjson.OPT_SORT_KEYS)).hexdigest()}"
    file.write_bytes(orjson.dumps({"version": 2, "checksum": checksum, "claims": [claim]}))
    with pytest.raises(Refused, match="still prepared for claim team/a"):
        await node.plugin().prepare(second)


async def test_two_plugins_on_one_node_see_each_others_claims(node: Node) -> None:
    old, new = node.plugin(), node.plugin()
    first, second = await allocated(node, "a", "gpu-0"), await allocated(node, "b", "gpu-1")
    await old.prepare(first)
    await new.prepare(second)
    await old.unprepare(second)
    assert list(new.restore()) == [first.uid]


async def test_calls_for_one_claim_at_once_prepare_it_once(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-0")
    plugin = node.plugin()
    first, *others = await asyncio.gather(*(plugin.prepare(claim) for _ in range(5)))
    assert others == [first] * 4


async def test_two_plugins_asked_for_one_claim_at_once_prepare_it_once(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-0")
    first, second = await asyncio.gather(*(plugin.prepare(claim) for plugin in (node.plugin(), node.plugin())))
    assert first == second


async def test_claims_that_want_one_device_at_once_do_not_both_get_it(node: Node) -> None:
    claims = [await allocated(node, name, "gpu-0") for name in "abc"]
    plugin = node.plugin()
    outcomes = await asyncio.gather(*map(plugin.prepare, claims), return_exceptions=True)
    assert sum(isinstance(outcome, Refused) for outcome in outcomes) == 2
    assert len(node.specifications()) == 1


async def test_shares_are_given_up_to_their_number(node: Node) -> None:
    plugin = node.plugin()
    for name in "ab":
        await plugin.prepare(await allocated(node, name, "gpu-2", shared=True))
    with pytest.raises(Refused) as error:
        await plugin.prepare(await allocated(node, "c", "gpu-2", shared=True))
    assert str(error.value) == (
        "claim team/c: device='gpu-2' has 2 shares, and claims team/a, team/b have them all:"
        " wait until a pod that uses it is gone from this node"
    )


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False)])
async def test_a_whole_device_is_not_shared(node: Node, first: bool, second: bool) -> None:
    plugin = node.plugin()
    await plugin.prepare(await allocated(node, "a", "gpu-2", shared=first))
    with pytest.raises(Refused) as error:
        await plugin.prepare(await allocated(node, "b", "gpu-2", shared=second))
    assert str(error.value) == (
        "claim team/b: device='gpu-2' is still prepared for claim team/a:"
        " wait until the pods that use it are gone from this node"
    )


async def test_a_device_that_the_node_does_not_have(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-7")
    with pytest.raises(Refused) as error:
        await node.plugin().prepare(claim)
    assert str(error.value) == (
        "claim team/a: device='gpu-7' is not a device of node 'n1', which has gpu-0, gpu-1, gpu-2:"
        " bring the device back, or delete the pod"
    )


async def test_a_claim_that_does_not_exist(node: Node) -> None:
    with pytest.raises(Refused) as error:
        await node.plugin().prepare(ClaimName("team", "a", "u0"))
    assert str(error.value) == (
        "claim team/a: does not exist: delete the pod, so that it is recreated with its claims"
    )


async def test_a_claim_that_was_made_again_under_its_name(node: Node) -> None:
    claim = await allocated(node, "a", "gpu-0")
    with pytest.raises(Refused, match="is another claim of that name, the pod was given 'u0'"):
        await node.plugin().prepare(ClaimName(claim.namespace, claim.name, "u0"))


class FailingServer(Client):
    """A client whose reads fail."""

    def __init__(self, server: MemoryServer, error: Exception) -> None:
        super().__init__(server.client())
        self._error = error

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Forbidden(403, "Forbidden", "not yours"), "403 Forbidden: not yours"),
        (OutcomeUnknown("connection reset"), "connection reset"),
        (TimeoutError(), "no answer within 20 s"),
    ],
)
async def test_an_api_server_that_does_not_answer(
    node: Node, server: MemoryServer, error: Exception, why: str
) -> None:
    claim = await allocated(node, "a", "gpu-0")
    with pytest.raises(Refused) as refusal:
        await node.plugin(client=FailingServer(server, error)).prepare(claim)
    assert str(refusal.value) == (
        f"claim team/a: cannot be read from the API server ({why}): the kubelet will try again"
    )


async def test_nothing_is_prepared_over_a_damaged_checkpoint(node: Node) -> None:
    plugin = node.plugin()
    claim = await allocated(node, "a", "gpu-0")
    (node.state / "checkpoint.json").write_bytes(b"{")
    for action in (plugin.prepare, plugin.unprepare):
        with pytest.raises(CheckpointError, match="is damaged"):
            await action(claim)
    with pytest.raises(CheckpointError, match="is damaged"):
        node.plugin()
    assert node.specifications() == {}
