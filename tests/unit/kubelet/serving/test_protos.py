"""The kubelet's protocols: generated code is that of protos/, and the wire is Kubernetes'."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor, FileDescriptor

import parley_kubelet
from parley_kubelet.proto import dra_v1_pb2, registration_v1_pb2

PROTOS = Path(__file__).parents[4] / "protos"
GENERATED = Path(parley_kubelet.__file__).parent / "proto"


def test_the_generated_code_is_up_to_date(tmp_path: Path) -> None:
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "grpc_python", "mypy")]
    files = sorted(path.name for path in PROTOS.glob("*.proto"))
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", "-I", "parley_kubelet/proto=.", *outputs),
            *(f"--mypy_grpc_out=only_async:{tmp_path}", *files),
        ],
        cwd=PROTOS,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        check=True,
    )
    expected = {path.name: path.read_text() for path in (tmp_path / "parley_kubelet/proto").iterdir()}
    present = {path.name: path.read_text() for path in GENERATED.glob("*_pb2*")}
    assert present == expected, "run `make protos`"


def fields(file: FileDescriptor, message: str) -> dict[str, int]:
    return {field.name: field.number for field in file.message_types_by_name[message].fields}


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        ("Claim", {"namespace": 1, "uid": 2, "name": 3}),
        ("NodePrepareResourcesRequest", {"claims": 1}),
        ("NodePrepareResourcesResponse", {"claims": 1}),
        ("NodePrepareResourceResponse", {"devices": 1, "error": 2}),
        ("NodeUnprepareResourcesRequest", {"claims": 1}),
        ("NodeUnprepareResourcesResponse", {"claims": 1}),
        ("NodeUnprepareResourceResponse", {"error": 1}),
        (
            "Device",
            {"request_names": 1, "pool_name": 2, "device_name": 3, "cdi_device_ids": 4, "share_id": 5},
        ),
    ],
)
def test_the_wire_of_dra_v1(message: str, numbers: dict[str, int]) -> None:
    assert fields(dra_v1_pb2.DESCRIPTOR, message) == numbers


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        ("PluginInfo", {"type": 1, "name": 2, "endpoint": 3, "supported_versions": 4}),
        ("RegistrationStatus", {"plugin_registered": 1, "error": 2}),
        ("RegistrationStatusResponse", {}),
        ("InfoRequest", {}),
    ],
)
def test_the_wire_of_registration_v1(message: str, numbers: dict[str, int]) -> None:
    assert fields(registration_v1_pb2.DESCRIPTOR, message) == numbers


def test_the_names_of_the_services() -> None:
    names = {
        f"/{service.full_name}/{method.name}"
        for file in (dra_v1_pb2.DESCRIPTOR, registration_v1_pb2.DESCRIPTOR)
        for service in file.services_by_name.values()
        for method in service.methods
    }
    assert names == {
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
        "/pluginregistration.Registration/GetInfo",
        "/pluginregistration.Registration/NotifyRegistrationStatus",
    }


def test_answers_are_maps_by_uid() -> None:
    for message in ("NodePrepareResourcesResponse", "NodeUnprepareResourcesResponse"):
        field: FieldDescriptor = dra_v1_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_name["claims"]
        assert field.message_type is not None
        assert field.message_type.GetOptions().map_entry
