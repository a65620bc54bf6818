"""What a container gets: the CDI specification of a claim, to the letter, and its file."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from parley_kubelet.cdi.specifications import Specifications, device_ids, specification
from parley_kubelet.cdi.validation import faults
from parley_kubelet.driver.devices import NodeDevice, edits_of
from parley_kubelet.edits import ContainerHook, DeviceNode, Edits, Mount
from parley_kubelet.state.checkpoint import CheckpointEntry, HeldDevice
from parley_kubelet.state.durable import Folder

DRIVER = "device.parley.dev"
UID = "5f2c7b1e-0000-4000-8000-000000000001"
GPU_0 = NodeDevice(
    name="gpu-0", model="a100", device_nodes=("/dev/gpu0", "/dev/gpuctl"), env={"GPU_UUID": "7", "MODE": "fast"}
)
GPU_1 = NodeDevice(
    name="gpu-1", model="h100", device_nodes=("/dev/gpu1", "/dev/gpuctl"), env={"GPU_UUID": "8", "MODE": "fast"}
)


def entry(edits: Edits, *devices: HeldDevice, uid: str = UID) -> CheckpointEntry:
    return CheckpointEntry.of(
        uid=uid,
        namespace="team",
        name="training",
        phase="prepared",
        boot="",
        results=(),
        devices=devices,
        handle={},
        edits=edits,
    )


def prepared(*devices: NodeDevice, uid: str = UID) -> CheckpointEntry:
    held = [HeldDevice(pool="n1", name=device.name) for device in devices]
    return entry(edits_of(devices), *held, uid=uid)


def test_one_cdi_device_for_the_claim_and_one_that_tells_each_device_apart() -> None:
    assert specification(DRIVER, prepared(GPU_0, GPU_1)) == {
        "cdiVersion": "0.6.0",
        "kind": "device.parley.dev/claim",
        "devices": [
            {
                "name": UID,
                "containerEdits": {
                    "env": [
                        "GPU_UUID=7,8",
                        "MODE=fast",
                        "PARLEY_DEVICE_GPU_0=a100",
                        "PARLEY_DEVICE_GPU_1=h100",
                    ],
                    "deviceNodes": [{"path": "/dev/gpu0"}, {"path": "/dev/gpuctl"}, {"path": "/dev/gpu1"}],
                },
            },
            {"name": f"{UID}_gpu-0", "containerEdits": {"env": ["PARLEY_DEVICE_GPU_0=a100"]}},
            {"name": f"{UID}_gpu-1", "containerEdits": {"env": ["PARLEY_DEVICE_GPU_1=h100"]}},
        ],
    }


def test_the_ids_that_the_kubelet_passes_on() -> None:
    claim = prepared(GPU_0, GPU_1)
    assert device_ids(DRIVER, claim, claim.devices[1]) == (
        f"device.parley.dev/claim={UID}_gpu-1",
        f"device.parley.dev/claim={UID}",
    )
    assert device_ids(DRIVER, claim) == (f"device.parley.dev/claim={UID}",)


def test_a_device_without_device_nodes_is_a_variable_alone() -> None:
    found = specification(DRIVER, prepared(NodeDevice(name="licence", model="cad")))
    assert found is not None
    assert [device["containerEdits"] for device in found["devices"]] == [
        {"env": ["PARLEY_DEVICE_LICENCE=cad"]}
    ] * 2


def test_a_device_that_the_driver_says_nothing_about_is_told_by_its_name() -> None:
    found = specification(DRIVER, entry(Edits(), HeldDevice(pool="n1", name="port-0")))
    assert found is not None
    assert found["devices"][0]["containerEdits"] == {"env": ["PARLEY_DEVICE_PORT_0=port-0"]}


def test_devices_of_one_name_in_two_pools_have_different_ids() -> None:
    claim = entry(Edits(), HeldDevice(pool="rack/a", name="disk"), HeldDevice(pool="rack/b", name="disk"))
    assert [device_ids(DRIVER, claim, device)[0] for device in claim.devices] == [
        f"device.parley.dev/claim={UID}_rack_a_disk",
        f"device.parley.dev/claim={UID}_rack_b_disk",
    ]
    assert faults(specification(DRIVER, claim)) == ()


def test_everything_that_a_container_can_be_given() -> None:
    edits = Edits(
        env={"A": "b=c"},
        device_nodes=(DeviceNode(path="/dev/x", host_path="/dev/y", permissions="rw", uid=7, gid=8),),
        mounts=(Mount(host_path="/srv/x", container_path="/x", options=("ro", "bind"), type="bind"),),
        hooks=(ContainerHook(hook_name="createRuntime", path="/bin/hook", args=("hook", "x"), env={"B": ""}),),
    )
    found = specification(DRIVER, entry(edits))
    assert found is not None
    assert faults(found) == ()
    assert found["devices"] == [
        {
            "name": UID,
            "containerEdits": {
                "env": ["A=b=c"],
                "deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/y", "permissions": "rw", "uid": 7, "gid": 8}],
                "mounts": [
                    {"hostPath": "/srv/x", "containerPath": "/x", "options": ["ro", "bind"], "type": "bind"}
                ],
                "hooks": [
                    {
                        "hookName": "createRuntime",
                        "path": "/bin/hook",
                        "args": ["hook", "x"],
                        "env": ["B="],
                    }
                ],
            },
        }
    ]


def test_a_claim_of_which_a_container_gets_nothing_has_no_file_and_no_id(folder: Folder) -> None:
    nothing = entry(Edits())
    assert specification(DRIVER, nothing) is None
    assert device_ids(DRIVER, nothing) == ()
    Specifications(folder, DRIVER).write(prepared(GPU_0))
    Specifications(folder, DRIVER).write(nothing)
    assert folder.names("") == ()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Edits, {"env": {"TOKEN": "s3cret\0"}}),
        (Edits, {"env": {"TOKEN": ["s3cret"]}}),
        (Edits, {"hooks": [{"hookName": "poststart", "path": "/bin/run", "env": {"TOKEN": "s3cret\0"}}]}),
        (ContainerHook, {"hook_name": "poststart", "path": "/bin/run", "args": ("--token", "s3cret\0")}),
    ],
)
def test_what_a_driver_returned_is_not_in_the_error_which_is_logged(kind: type[Any], fields: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        kind(**fields)
    assert "s3cret" not in str(refused.value)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_the_file_of_a_claim(folder: Folder) -> None:
    specifications = Specifications(folder, DRIVER)
    specifications.write(prepared(GPU_0))
    path = folder.path / f"parley.dev-device.parley.dev-claim-{UID}.json"
    assert orjson.loads(path.read_bytes()) == specification(DRIVER, prepared(GPU_0))
    assert path.stat().st_mode & 0o777 == 0o600, "what variables say may be secret"
    specifications.remove(UID)
    assert folder.names("") == ()


def test_a_file_that_is_right_is_not_written_again(folder: Folder) -> None:
    specifications = Specifications(folder, DRIVER)
    specifications.write(prepared(GPU_0))
    (path,) = folder.path.iterdir()
    before = path.stat().st_ino
    specifications.write(prepared(GPU_0))
    assert path.stat().st_ino == before


def test_the_claims_that_have_a_file_are_those_of_the_driver(folder: Folder) -> None:
    folder.write("nvidia.com-gpu.yaml", b"of another vendor")
    folder.write(f"parley.dev-fpga.parley.dev-claim-{UID}.json", b"of another driver")
    specifications = Specifications(folder, DRIVER)
    specifications.write(prepared(GPU_0, uid="left-by-a-crash"))
    specifications.write(prepared(GPU_1))
    assert specifications.claims() == {"left-by-a-crash", UID}


def test_no_file_is_taken_for_that_of_a_driver_whose_name_is_the_beginning_of_its_own(folder: Folder) -> None:
    """It would be removed as an orphan, and containers of the other driver's claims would not start."""
    other = Specifications(folder, "fpga.io-claim-b.io")
    other.write(prepared(GPU_0))
    assert Specifications(folder, "fpga.io").claims() == set()
    assert other.claims() == {UID}
