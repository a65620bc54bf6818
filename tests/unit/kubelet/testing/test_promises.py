"""The test kit for authors finds each kind of broken promise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.drivers import Port, PortSettings, port

from parley_kubelet.edits import Edits, Mount
from parley_kubelet.hooks import DeviceCondition, Health, HeldClaim, NodeClaim, NodeDriver, Offer, Prepared
from parley_kubelet.testing import NodeScenario, check_node_driver, node_claim


class Files(NodeDriver[Port, PortSettings]):
    """Keeps its promises: a file per claim. `folder` is set by the test."""

    name = "files.example.com"
    handle = Port
    settings = PortSettings
    folder: Path

    def devices(self) -> Sequence[Offer]:
        return (Offer("port-1"),)

    async def prepare(self, claim: NodeClaim[Port]) -> Prepared:
        self.file(claim).touch()
        return Prepared(Edits(env={"NUMBER": str(claim.handle.number)}), {"made": True})

    async def unprepare(self, held: HeldClaim[Port]) -> None:
        self.file(held.claim).unlink(missing_ok=True)

    async def health(self, held: Sequence[HeldClaim[Port]]) -> Sequence[Health]:
        return [Health(device, DeviceCondition.HEALTHY) for one in held for device in one.claim.devices]

    def file(self, claim: NodeClaim[Port]) -> Path:
        return self.folder / claim.uid


class TwoOfOneName(Files):
    def devices(self) -> Sequence[Offer]:
        return (Offer("port-1"), Offer("port-1"))


class NeedsTheState(Files):
    async def unprepare(self, held: HeldClaim[Port]) -> None:
        if held.state is not None:
            await super().unprepare(held)


class KeepsFiles(Files):
    async def unprepare(self, held: HeldClaim[Port]) -> None:
        """Forgets to remove the file."""


class FailsTheSecondTime(Files):
    async def prepare(self, claim: NodeClaim[Port]) -> Prepared:
        self.file(claim).touch(exist_ok=False)
        return Prepared()


class CannotBeUndoneTwice(Files):
    async def unprepare(self, held: HeldClaim[Port]) -> None:
        self.file(held.claim).unlink()


class MakesUpNumbers(Files):
    made = 0

    async def prepare(self, claim: NodeClaim[Port]) -> Prepared:
        MakesUpNumbers.made += 1
        return Prepared(Edits(env={"NUMBER": str(MakesUpNumbers.made)}))


class ListsWhatIsGone(Files):
    async def left(self) -> Sequence[NodeClaim[Port]]:
        return [node_claim(Files, "c1", {"number": 1})]


class PlainPrepare(Files):
    def prepare(self, claim: NodeClaim[Port]) -> Prepared:  # type: ignore[override]
        return Prepared()


class PlainUnprepare(Files):
    def unprepare(self, held: HeldClaim[Port]) -> None:  # type: ignore[override]
        self.file(held.claim).unlink(missing_ok=True)


class ReturnsEdits(Files):
    async def prepare(self, claim: NodeClaim[Port]) -> Any:
        return Edits(env={"NUMBER": "7"})


class BadEdits(Files):
    async def prepare(self, claim: NodeClaim[Port]) -> Prepared:
        mount = Mount.model_construct(host_path="a", container_path="/a", options=(), type=None)
        return Prepared(Edits.model_construct(env={}, device_nodes=(), mounts=(mount,), hooks=()))


class LeavesOutDevices(Files):
    async def health(self, held: Sequence[HeldClaim[Port]]) -> Sequence[Health]:
        return ()


def scenario(driver: type[Files], folder: Path) -> NodeScenario:
    driver.folder = folder
    claims = tuple(node_claim(driver, f"c{n}", {"number": n}, port(f"port-{n}")) for n in (1, 2))
    return NodeScenario(
        make=lambda: driver("n1", PortSettings()), claims=claims, left=lambda: sorted(folder.iterdir())
    )


async def test_a_driver_that_keeps_its_promises(tmp_path: Path) -> None:
    await check_node_driver(scenario(Files, tmp_path))


@pytest.mark.parametrize(
    ("driver", "broken"),
    [
        (TwoOfOneName, r"devices\(\) has two devices of one name"),
        (NeedsTheState, r"unprepare\(\) without the state of claim team/c1 left something"),
        (KeepsFiles, r"unprepare\(\) left something of claims that were prepared together"),
        (MakesUpNumbers, r"prepare\(\) of claim team/c1 gave something else the second time"),
        (BadEdits, r"prepare\(\) of claim team/c1 gave edits that containers cannot have: .*hostPath='a'"),
        (ListsWhatIsGone, r"left\(\) has claim team/c1 after unprepare\(\) and remove_data\(\)"),
        (PlainPrepare, r"prepare\(\) returned Prepared\(.*: prepare must be async def, the plugin awaits it"),
        (PlainUnprepare, r"unprepare\(\) returned None: unprepare must be async def, the plugin awaits it"),
        (ReturnsEdits, r"prepare\(\) of claim team/c1 returned Edits\(.*: it must be Prepared"),
        (LeavesOutDevices, r"health\(\) leaves out devices of claim team/c1"),
    ],
)
async def test_a_broken_promise_is_named(tmp_path: Path, driver: type[Files], broken: str) -> None:
    with pytest.raises(AssertionError, match=broken):
        await check_node_driver(scenario(driver, tmp_path))


@pytest.mark.parametrize("driver", [FailsTheSecondTime, CannotBeUndoneTwice])
async def test_a_hook_that_cannot_be_repeated_fails_with_its_own_error(tmp_path: Path, driver: type[Any]) -> None:
    with pytest.raises(OSError, match=r"No such file|File exists"):
        await check_node_driver(scenario(driver, tmp_path))
