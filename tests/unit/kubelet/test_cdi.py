"""What a container gets: the CDI specification of a claim, to the letter, and its file."""

from pathlib import Path

import orjson
import pytest

from parley_kubelet.cdi import Specifications, device_id, specification
from parley_kubelet.checkpoint import PreparedClaim
from parley_kubelet.devices import NodeDevice
from parley_kubelet.durable import Folder

DRIVER = "device.parley.dev"
UID = "5f2c7b1e-0000-4000-8000-000000000001"
GPU_0 = NodeDevice(
    name="gpu-0", model="a100", device_nodes=("/dev/gpu0", "/dev/gpuctl"), env={"GPU_UUID": "7", "MODE": "fast"}
)
GPU_1 = NodeDevice(
    name="gpu-1", model="h100", device_nodes=("/dev/gpu1", "/dev/gpuctl"), env={"GPU_UUID": "8", "MODE": "fast"}
)


def prepared(*devices: NodeDevice, uid: str = UID) -> PreparedClaim:
    return PreparedClaim(uid=uid, namespace="team", name="training", shared=False, results=(), devices=devices)


def test_one_cdi_device_for_all_devices_of_the_claim() -> None:
    assert specification(DRIVER, prepared(GPU_0, GPU_1)) == {
        "cdiVersion": "0.6.0",
        "kind": "device.parley.dev/claim",
        "devices": [
            {
                "name": UID,
                "containerEdits": {
                    "env": [
                        "PARLEY_DEVICE_GPU_0=a100",
                        "GPU_UUID=7,8",
                        "MODE=fast",
                        "PARLEY_DEVICE_GPU_1=h100",
                    ],
                    "deviceNodes": [{"path": "/dev/gpu0"}, {"path": "/dev/gpuctl"}, {"path": "/dev/gpu1"}],
                },
            }
        ],
    }
    assert device_id(DRIVER, UID) == f"device.parley.dev/claim={UID}"


def test_a_device_without_device_nodes_is_a_variable_alone() -> None:
    (device,) = specification(DRIVER, prepared(NodeDevice(name="licence", model="cad")))["devices"]
    assert device["containerEdits"] == {"env": ["PARLEY_DEVICE_LICENCE=cad"]}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_the_file_of_a_claim(folder: Folder) -> None:
    specifications = Specifications(folder, DRIVER)
    specifications.write(prepared(GPU_0))
    path = folder.path / f"parley.dev-device.parley.dev-claim-{UID}.json"
    assert orjson.loads(path.read_bytes()) == specification(DRIVER, prepared(GPU_0))
    assert path.stat().st_mode & 0o777 == 0o644
    specifications.remove(UID)
    assert folder.names("") == ()


def test_a_file_that_is_right_is_not_written_again(folder: Folder) -> None:
    specifications = Specifications(folder, DRIVER)
    specifications.write(prepared(GPU_0))
    (path,) = folder.path.iterdir()
    before = path.stat().st_ino
    specifications.write(prepared(GPU_0))
    assert path.stat().st_ino == before


def test_restoring_writes_what_is_missing_and_removes_what_nobody_knows(folder: Folder) -> None:
    other = "nvidia.com-gpu.yaml"
    folder.write(other, b"of another vendor")
    folder.write(f"parley.dev-fpga.parley.dev-claim-{UID}.json", b"of another driver")
    specifications = Specifications(folder, DRIVER)
    specifications.write(prepared(GPU_0, uid="left-by-a-crash"))
    specifications.restore([prepared(GPU_1)])
    assert folder.names("") == (
        other,
        f"parley.dev-device.parley.dev-claim-{UID}.json",
        f"parley.dev-fpga.parley.dev-claim-{UID}.json",
    )
