"""What a container runtime would refuse in a CDI file."""

from typing import Any

import pytest
from pydantic import ValidationError

from parley_kubelet.cdi.validation import faults
from parley_kubelet.edits import ContainerHook, DeviceNode, Edits, Mount

EDITS = {"env": ["A=b"]}


def specification(**fields: Any) -> dict[str, Any]:
    device = {"name": "a", "containerEdits": EDITS}
    return {"cdiVersion": "0.6.0", "kind": "example.com/claim", "devices": [device], **fields}


def edited(**edits: Any) -> dict[str, Any]:
    return specification(devices=[{"name": "a", "containerEdits": edits}])


def test_a_right_one() -> None:
    assert faults(specification()) == ()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ([], "the file=[]: is not an object"),
        (specification(cdiVersion="7"), "cdiVersion='7': is not one of 0.3.0, 0.4.0, 0.5.0, 0.6.0"),
        (specification(kind="claim"), "kind='claim': is not vendor/class"),
        (specification(kind="3d.com/claim"), "kind='3d.com/claim': is not vendor/class"),
        (specification(colour="red"), "the file: colour is not a field"),
        (specification(devices=[]), "devices: is empty"),
        (specification(devices=[{"name": "a", "containerEdits": EDITS}] * 2), "devices: two have the same name"),
        (specification(devices=["a"]), "devices[0]='a': is not an object"),
        (
            specification(devices=[{"name": "-a", "containerEdits": EDITS}]),
            "devices[0].name='-a': use letters, digits, '_', '-', '.' and ':'",
        ),
        (specification(devices=[{"name": "a"}]), "devices[0]: containerEdits is missing"),
        (edited(), "devices[0].containerEdits: is empty"),
        (edited(env=["A"]), "devices[0].containerEdits.env[0]='A': is not NAME=value"),
        (edited(env="A=b"), "devices[0].containerEdits.env='A=b': is not of type list"),
        (edited(deviceNodes=[{}]), "devices[0].containerEdits.deviceNodes[0]: path is missing"),
        (
            edited(deviceNodes=[{"path": "/dev/a", "permissions": "x"}]),
            "devices[0].containerEdits.deviceNodes[0].permissions='x': use r, w and m",
        ),
        (
            edited(mounts=[{"hostPath": "a", "containerPath": "/a"}]),
            "devices[0].containerEdits.mounts[0].hostPath='a': is not an absolute path",
        ),
        (
            edited(hooks=[{"hookName": "start", "path": "/a"}]),
            "devices[0].containerEdits.hooks[0].hookName='start': is not one of createContainer, createRuntime,"
            " poststart, poststop, prestart, startContainer",
        ),
        (
            edited(hooks=[{"hookName": "prestart", "path": "/a", "env": ["="]}]),
            "devices[0].containerEdits.hooks[0].env[0]='=': is not NAME=value",
        ),
    ],
)
def test_a_fault_names_field_and_value(content: Any, fault: str) -> None:
    assert fault in faults(content)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Edits(env={"A=B": "c"}),
        lambda: Edits(env={"": "c"}),
        lambda: Edits(env={"A": "zero\0byte"}),
        lambda: DeviceNode(path="dev/a"),
        lambda: DeviceNode(path="/dev/a", permissions="rx"),
        lambda: DeviceNode(path="/dev/a", uid=-1),
        lambda: Mount(host_path="a", container_path="/a"),
        lambda: Mount(host_path="/a", container_path="a"),
        lambda: ContainerHook.model_validate({"hookName": "start", "path": "/a"}),
        lambda: ContainerHook(hook_name="prestart", path="/a", timeout=0),
    ],
)
def test_edits_that_the_runtime_would_refuse_cannot_be_made(make: Any) -> None:
    with pytest.raises(ValidationError):
        make()
