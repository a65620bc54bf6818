"""The device configuration file: what it may say, and every fault word by word."""

from pathlib import Path

import pytest

from parley_kubelet.configuration import Configuration, ConfigurationError, DeviceEntry, load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "devices.yaml"


def test_a_full_file(file: Path) -> None:
    file.write_text(
        """
        driver: gpu.example.com
        devices:
        - name: gpu-0
          model: a100
          memory: 40Gi
          slices: 2
          deviceNodes: [/dev/null, /dev/zero]
          env: {GPU_UUID: "GPU-7"}
        - glob: /dev/fuse*
          model: fuse
        """
    )
    configuration = load(file)
    assert configuration.driver == "gpu.example.com"
    named, by_glob = configuration.devices
    assert (named.name, named.model, named.memory, named.slices) == ("gpu-0", "a100", "40Gi", 2)
    assert (named.device_nodes, named.env) == (("/dev/null", "/dev/zero"), {"GPU_UUID": "GPU-7"})
    assert by_glob == DeviceEntry(glob="/dev/fuse*", model="fuse")


def test_an_empty_file_is_a_node_without_devices(file: Path) -> None:
    file.write_text("")
    assert load(file) == Configuration()


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            "devices: [{name: GPU_0, model: a100}]",
            [
                "devices[0].name='GPU_0': use at most 63 of a-z, 0-9 and '-', with a letter or digit at both ends",
            ],
        ),
        (
            "driver: 3D.example\ndevices: [{name: a}]",
            [
                "driver='3D.example': use a lower-case DNS name of at most 63 characters that starts with a"
                " letter, such as device.parley.dev",
                "devices[0].model is missing: add it",
            ],
        ),
        (
            "devices: [{name: a, model: m, memory: lots}]",
            [
                "devices[0].memory='lots': 'lots' is not a quantity; write a number such as 2, 250m or 16Gi",
            ],
        ),
        (
            "devices: [{name: a, model: m, memory: 0Gi}]",
            ["devices[0].memory='0Gi': must be more than 0; leave the field out if it does not matter"],
        ),
        (
            "devices: [{name: a, model: m, slices: 0}]",
            ["devices[0].slices=0: Input should be greater than or equal to 1"],
        ),
        (
            "devices: [{name: a, model: m, slices: '2'}]",
            ["devices[0].slices='2': is not a whole number"],
        ),
        (
            "devices: [{name: a, model: m, shares: 2}]",
            ["devices[0].shares=2: is not a field of this file: correct its spelling or remove it"],
        ),
        (
            "devices: [{name: a, model: 100}]",
            ["devices[0].model=100: is not a text: put it in quotes"],
        ),
        (
            "devices: [{name: a, model: m, deviceNodes: [dev/null]}]",
            ["devices[0].deviceNodes[0]='dev/null': use an absolute path, such as /dev/fuse"],
        ),
        (
            "devices: [{name: a, model: m, env: {GPU-UUID: '7', N: 1}}]",
            [
                "devices[0].env.GPU-UUID='GPU-UUID': use letters, digits and '_', with no digit first,"
                " for the variable's name",
                "devices[0].env.N: is not a text: put it in quotes",
            ],
        ),
        (
            "devices: [{model: m}]",
            ["devices[0]: give either name, for one device, or glob, for one device per match"],
        ),
        (
            "devices: [{glob: /dev/null, model: m, deviceNodes: [/dev/null]}]",
            ["devices[0]: leave out deviceNodes beside glob: each match is the device's node"],
        ),
        (
            "devices: [{name: a, model: m}, {name: b, model: m}, {name: a, model: m}]",
            ["devices: two have the name 'a': rename one of them"],
        ),
        (
            "drivers: {a.example: secret, B: {}}",
            [
                "drivers['a.example']: is not a mapping of names to values",
                "drivers.B='B': use a lower-case DNS name of at most 63 characters that starts with a letter,"
                " such as device.parley.dev",
            ],
        ),
        ("drivers: [secret]", ["drivers: is not a mapping of names to values"]),
        ("devices: [{name: a, model: m, env: secret}]", ["devices[0].env: is not a mapping of names to values"]),
        ("- a", ["the file=['a']: is not a mapping of fields to values"]),
        ("devices: 7", ["devices=7: is not a list"]),
    ],
)
def test_every_fault_names_field_value_and_remedy(file: Path, text: str, faults: list[str]) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        load(file)
    assert str(error.value).splitlines() == [f"{file}: {fault}" for fault in faults]


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(file)
    assert str(error.value) == f"{file}: No such file or directory: give a file that can be read in --config"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"devices: [", ", line 1, column 11"),
        (b"drivers:\n  a.example:\n    token: secret: x\n", ", line 3, column 18"),
        (b"drivers: {a.example: {token: *secret}}", ", line 1, column 30"),
        (b"token: secret\xff", ""),
    ],
)
def test_a_file_that_is_not_yaml(file: Path, text: bytes, where: str) -> None:
    file.write_bytes(text)
    with pytest.raises(ConfigurationError) as error:
        load(file)
    assert str(error.value) == f"{file}{where}: is not YAML: correct it", "no secret of the file's text"
