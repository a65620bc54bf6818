"""The example of a node driver: it keeps the promises, and both its parts agree about the handle."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from examples.scratch.scratch_driver import ScratchDriver
from examples.scratch.scratch_node import Place, ScratchNode

from parley.api.builtin import (
    DeviceCapacity,
    ObjectMeta,
    Pool,
    ResourceSlice,
    ResourceSliceSpec,
    SliceDevice,
)
from parley.sdk.testing import Scenario as ControllerScenario
from parley.sdk.testing import check_driver, request
from parley_kubelet.configuration import load, settings_of
from parley_kubelet.hooks import DeviceCondition, DeviceName, HeldClaim, NodeClaim, Refused
from parley_kubelet.testing import NodeScenario, check_node_driver, node_claim

FILES = Path(__file__).parents[3] / "examples" / "scratch"
DISK = DeviceName("n1", "scratch")


def driver(folder: Path, size: int = 100) -> ScratchNode:
    return ScratchNode("n1", Place(folder=folder, size_mib=size))


def claim(name: str, size: int) -> NodeClaim[Any]:
    return node_claim(ScratchNode, name, {"sizeMiB": size}, DISK)


async def test_the_node_part_keeps_its_promises(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    await check_node_driver(
        NodeScenario(
            make=lambda: driver(folder),
            claims=(claim("a", 60), claim("b", 40)),
            left=lambda: sorted(path.name for path in folder.iterdir()),
        )
    )


async def test_a_container_finds_its_folder_with_what_it_left_there(tmp_path: Path) -> None:
    prepared = await driver(tmp_path).prepare(claim("a", 60))
    (mount,) = prepared.edits.mounts
    assert (mount.host_path, mount.container_path) == (str(tmp_path / "uid-of-a"), "/scratch")
    assert prepared.edits.env == {"SCRATCH": "/scratch", "SCRATCH_MIB": "60"}
    (tmp_path / "uid-of-a" / "file").write_text("kept")
    await driver(tmp_path).prepare(claim("a", 60))
    assert (tmp_path / "uid-of-a" / "file").read_text() == "kept"
    await driver(tmp_path).unprepare(HeldClaim(claim("a", 60), None))
    assert not (tmp_path / "uid-of-a").exists()


def test_a_claim_for_which_there_is_no_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refusal:
        driver(tmp_path).admit(claim("b", 41), [HeldClaim(claim("a", 60), {})])
    assert str(refusal.value) == (
        "sizeMiB=41 is more than the 40 MiB that node n1 has left: wait until a pod with scratch is gone from it"
    )


async def test_a_disk_without_its_folder_is_ill(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (well,) = await driver(tmp_path / "new").health(())
    (ill,) = await driver(tmp_path / "file").health(())
    assert (well.device, well.condition) == (DISK, DeviceCondition.HEALTHY)
    assert (ill.condition, ill.message) == (DeviceCondition.UNHEALTHY, f"{tmp_path}/file: File exists")


def published(node: str, size: str) -> ResourceSlice:
    device = SliceDevice(name="scratch", capacity={"size": DeviceCapacity(value=size)})
    spec = ResourceSliceSpec(driver=ScratchDriver.name, node_name=node, pool=Pool(name=node), devices=[device])
    return ResourceSlice(metadata=ObjectMeta(name=node), spec=spec)


def stocked() -> ScratchDriver:
    made = ScratchDriver()
    for node, size in (("n1", "100Mi"), ("n2", "10Mi")):
        assert made.observe(None, published(node, size))
    return made


async def test_the_controllers_part_keeps_its_promises() -> None:
    wanted = (request(stocked(), "p", {"sizeMiB": 60}, {"sizeMiB": 40}), request(stocked(), "q", {"sizeMiB": 10}))
    await check_driver(ControllerScenario(stocked, ("n1", "n2", "n3"), wanted))


async def test_the_node_understands_what_the_controller_hands_over() -> None:
    allocation = (await stocked().allocate(request(stocked(), "p", {"sizeMiB": 60}), "n1"))["claim-0"]
    (device,) = allocation.devices
    assert (device.pool, device.device) == (DISK.pool, DISK.device)
    assert ScratchNode.handle.model_validate(dict(allocation.data)).size_mib == 60


def test_its_files_are_valid() -> None:
    place = settings_of(load(FILES / "node.yaml"), FILES / "node.yaml", ScratchNode.name, Place)
    assert place == Place(folder=Path("/var/lib/scratch"), size_mib=2048)
    class_, template, _ = yaml.safe_load_all((FILES / "scratch.yaml").read_text())
    assert class_["driverName"] == ScratchNode.name
    assert ScratchDriver.parameters.model_validate(template["spec"]["spec"]["parameters"]).size == 100
