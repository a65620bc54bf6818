"""Discovery: which devices of the configuration file this node has now. Device nodes are the machine's own."""

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.devices import NameTaken, NodeDevice, discover, missing_device_nodes, safe_name


def configured(*entries: dict[str, Any]) -> Configuration:
    return Configuration.model_validate({"devices": entries})


def test_a_named_device_has_what_the_file_says() -> None:
    entry = {"name": "gpu-0", "model": "a100", "memory": "40Gi", "slices": 4, "deviceNodes": ["/dev/null"]}
    assert discover(configured({**entry, "env": {"GPU_UUID": "7"}})) == (
        NodeDevice(
            name="gpu-0",
            model="a100",
            memory="40Gi",
            shares=4,
            device_nodes=("/dev/null",),
            env={"GPU_UUID": "7"},
        ),
    )


def test_a_glob_makes_one_device_of_each_device_node() -> None:
    found = discover(configured({"glob": "/dev/[zn][eu][rl][ol]", "model": "memory"}))
    assert found == (
        NodeDevice(name="null", model="memory", device_nodes=("/dev/null",)),
        NodeDevice(name="zero", model="memory", device_nodes=("/dev/zero",)),
    )


def test_what_is_not_a_device_node_is_no_match(tmp_path: Path) -> None:
    (tmp_path / "fuse-file").write_text("")
    (tmp_path / "fuse-link").symlink_to("/dev/null")
    assert discover(configured({"glob": f"{tmp_path}/fuse*", "model": "fuse"})) == ()


def test_a_named_device_without_its_device_node_is_not_there() -> None:
    configuration = configured(
        {"name": "gpu-0", "model": "a100", "deviceNodes": ["/dev/null", "/dev/no-such-gpu"]},
        {"name": "gpu-1", "model": "a100"},
    )
    assert [device.name for device in discover(configuration)] == ["gpu-1"]
    assert missing_device_nodes(configuration) == ("gpu-0: /dev/no-such-gpu is not a device node",)


def test_two_devices_of_one_name_are_refused() -> None:
    configuration = configured(
        {"name": "null", "model": "a100"},
        {"glob": "/dev/null", "model": "memory"},
    )
    with pytest.raises(NameTaken) as error:
        discover(configuration)
    assert str(error.value) == (
        "device 'null': an entry of the file and /dev/null have the same name:"
        " narrow the glob in the configuration file, or rename the device"
    )


@pytest.mark.parametrize(
    ("file", "name"), [("nvme0n1p1", "nvme0n1p1"), ("GPU_0", "gpu-0"), ("__", "device"), ("a" * 80, "a" * 63)]
)
def test_a_name_made_of_a_file_name(file: str, name: str) -> None:
    assert safe_name(file) == name


@given(st.text())
def test_any_file_name_becomes_a_dns_label(file: str) -> None:
    name = safe_name(file)
    assert 1 <= len(name) <= 63
    assert set(name) <= set(string.ascii_lowercase + string.digits + "-")
    assert not name.startswith("-")
    assert not name.endswith("-")
