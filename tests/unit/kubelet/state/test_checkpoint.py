"""The checkpoint: what it keeps, and that it is never trusted when it cannot be."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley_kubelet.edits import DeviceNode, Edits
from parley_kubelet.state.checkpoint import (
    Checkpoint,
    CheckpointEntry,
    CheckpointError,
    HeldDevice,
    ReportedDevice,
)
from parley_kubelet.state.durable import Folder

CLAIM = CheckpointEntry.of(
    uid="u1",
    namespace="team",
    name="training",
    phase="prepared",
    boot="b1",
    node="n1",
    results=(ReportedDevice(request="exclusive", pool="n1", device="gpu-0"),),
    devices=(HeldDevice(pool="n1", name="gpu-0"),),
    handle={"devices": [{"pool": "n1", "device": "gpu-0"}], "shared": True},
    edits=Edits(env={"A": "b"}, device_nodes=(DeviceNode(path="/dev/null"),)),
    state={"port": 7},
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_nothing_is_prepared_at_first(folder: Folder) -> None:
    assert dict(Checkpoint(folder, "n1").read()) == {}


def test_what_was_written_is_read_by_the_next_process(folder: Folder) -> None:
    Checkpoint(folder, "n1").write({"u1": CLAIM})
    assert dict(Checkpoint(Folder(folder.path), "n1").read()) == {"u1": CLAIM}


def test_the_format(folder: Folder) -> None:
    Checkpoint(folder, "n1").write({"u1": CLAIM})
    assert orjson.loads((folder.path / "checkpoint.json").read_bytes()) == {
        "version": 2,
        "checksum": "sha256:71b1fac6fa2fb1ba070fa846ed123416df81c3627785f2e78c391ab2a3df6a54",
        "claims": [
            {
                "uid": "u1",
                "namespace": "team",
                "name": "training",
                "phase": "prepared",
                "boot": "b1",
                "node": "n1",
                "results": [{"request": "exclusive", "pool": "n1", "device": "gpu-0"}],
                "devices": [{"pool": "n1", "name": "gpu-0"}],
                "handle": {"devices": [{"pool": "n1", "device": "gpu-0"}], "shared": True},
                "edits": {
                    "env": {"A": "b"},
                    "deviceNodes": [
                        {"path": "/dev/null", "hostPath": None, "permissions": None, "uid": None, "gid": None}
                    ],
                    "mounts": [],
                    "hooks": [],
                },
                "state": {"port": 7},
            }
        ],
    }


def test_what_can_be_written_can_be_read_however_deep_it_nests(folder: Folder) -> None:
    """A node driver's state may be anything that is JSON."""
    state: dict[str, Any] = {}
    with pytest.raises(TypeError, match="Recursion limit"):  # noqa: PT012 - how deep is too deep is for orjson to say
        while True:
            state = {"in": state}
            Checkpoint(folder, "n1").write({"u1": CLAIM.with_changes(state=state)})
    (found,) = Checkpoint(folder, "n1").read().values()
    assert found.state == state["in"]


def damage(folder: Folder, change: Callable[[bytes], bytes]) -> None:
    path = folder.path / "checkpoint.json"
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda _: b"", "it is not JSON (Input is a zero-length, empty document: line 1 column 1 (char 0))"),
        (lambda _: b"7", "it is not a JSON object"),
        (lambda _: b"{}", "version=None was never written"),
        (lambda whole: whole.replace(b'"version":2', b'"version":0'), "version=0 was never written"),
        (lambda _: b'{"version": 1}', "it has no list of claims"),
        (
            lambda whole: whole.replace(b"gpu-0", b"gpu-1"),
            "checksum='sha256:71b1fac6fa2fb1ba070fa846ed123416df81c3627785f2e78c391ab2a3df6a54'"
            " should be 'sha256:cffb66d4557c63a6745e8fb4ca2efaf96586b9cdbaa13f299179f086ac609e24'",
        ),
    ],
)
def test_a_damaged_file_is_refused(folder: Folder, change: Callable[[bytes], bytes], how: str) -> None:
    Checkpoint(folder, "n1").write({"u1": CLAIM})
    damage(folder, change)
    with pytest.raises(CheckpointError) as error:
        Checkpoint(folder, "n1").read()
    assert str(error.value) == (
        f"checkpoint {folder.path}/checkpoint.json is damaged, {how}: drain the node of pods with claims,"
        " remove the file, and start parley-kubelet again"
    )


def test_a_newer_file_is_refused(folder: Folder) -> None:
    Checkpoint(folder, "n1").write({"u1": CLAIM})
    damage(folder, lambda whole: whole.replace(b'"version":2', b'"version":3'))
    with pytest.raises(CheckpointError) as error:
        Checkpoint(folder, "n1").read()
    assert str(error.value) == (
        f"checkpoint {folder.path}/checkpoint.json: version=3 is newer than 2, which this parley-kubelet writes:"
        " start the newer version again, or drain the node before going back"
    )


def test_fields_that_a_later_plugin_added_are_ignored(folder: Folder) -> None:
    claims = [{**orjson.loads(CLAIM.encoded), "colour": "red"}]
    checksum = "sha256:" + hashlib.sha256(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS)).hexdigest()
    folder.write("checkpoint.json", orjson.dumps({"version": 2, "checksum": checksum, "claims": claims}))
    assert dict(Checkpoint(folder, "n1").read()) == {"u1": CLAIM}


@pytest.mark.parametrize(
    ("change", "how"),
    [
        ({"phase": "ready"}, "Invalid enum value 'ready' - at `$.phase`"),
        ({"devices": [{"pool": "n1"}]}, "Object missing required field `name` - at `$.devices[0]`"),
        ({"edits": {"env": {"7": "b"}}}, "env.7.[key]: Value error, use letters, digits and '_'"),
        ({"handle": ...}, "Object missing required field `handle`"),
    ],
)
def test_an_entry_that_was_never_written_is_damage(folder: Folder, change: dict[str, Any], how: str) -> None:
    changed = {**orjson.loads(CLAIM.encoded), **change}
    claims = [{name: value for name, value in changed.items() if value is not ...}]
    checksum = "sha256:" + hashlib.sha256(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS)).hexdigest()
    folder.write("checkpoint.json", orjson.dumps({"version": 2, "checksum": checksum, "claims": claims}))
    with pytest.raises(CheckpointError, match=re.escape(f"is damaged, {how}")):
        Checkpoint(folder, "n1").read()


@given(at=st.integers(min_value=0), tear=st.booleans())
def test_no_damage_is_read_as_something_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, tear: bool
) -> None:
    folder = Folder(tmp_path_factory.mktemp("state"))
    Checkpoint(folder, "n1").write({"u1": CLAIM})

    def change(whole: bytes) -> bytes:
        cut = at % len(whole)
        return whole[:cut] if tear else whole[:cut] + bytes([whole[cut] ^ 1]) + whole[cut + 1 :]

    damage(folder, change)
    try:
        claims = dict(Checkpoint(folder, "n1").read())
    except CheckpointError:
        return
    assert claims == {"u1": CLAIM}


OLD = {
    "uid": "u1",
    "namespace": "team",
    "name": "training",
    "shared": True,
    "results": [{"request": "exclusive", "pool": "n1", "device": "gpu-0"}],
    "devices": [
        {
            "name": "gpu-0",
            "model": "a100",
            "memory": None,
            "shares": 2,
            "deviceNodes": ["/dev/null"],
            "env": {"A": "b"},
        }
    ],
}


def write_version_1(folder: Folder, *claims: object) -> None:
    checksum = "sha256:" + hashlib.sha256(orjson.dumps(list(claims), option=orjson.OPT_SORT_KEYS)).hexdigest()
    folder.write("checkpoint.json", orjson.dumps({"version": 1, "checksum": checksum, "claims": claims}))


def test_a_file_of_version_1_is_read_with_all_that_containers_were_given(folder: Folder) -> None:
    write_version_1(folder, OLD)
    (found,) = Checkpoint(folder, "n1").read().values()
    assert (found.uid, found.full_name, found.phase, found.boot) == ("u1", "team/training", "prepared", "")
    assert found.results == CLAIM.results
    assert found.devices == CLAIM.devices
    assert found.handle == CLAIM.handle
    assert found.edits.cdi() == {
        "env": ["A=b", "PARLEY_DEVICE_GPU_0=a100"],
        "deviceNodes": [{"path": "/dev/null"}],
    }


def test_the_devices_behind_a_placeholder_of_version_1_are_of_this_node(folder: Folder) -> None:
    write_version_1(
        folder, {**OLD, "results": [{"request": "exclusive", "pool": "parley.dev", "device": "negotiated"}]}
    )
    (found,) = Checkpoint(folder, "n1").read().values()
    assert found.results == CLAIM.results


def test_the_next_change_writes_version_2(folder: Folder) -> None:
    write_version_1(folder, OLD)
    checkpoint = Checkpoint(folder, "n1")
    before = checkpoint.read()
    checkpoint.write(before)
    assert orjson.loads((folder.path / "checkpoint.json").read_bytes())["version"] == 2
    assert dict(Checkpoint(folder, "n1").read()) == dict(before)


def test_an_entry_that_no_version_1_wrote_is_damage(folder: Folder) -> None:
    write_version_1(folder, {**OLD, "devices": [{"name": "gpu-0"}]})
    with pytest.raises(CheckpointError, match=r"is damaged, devices\.0\.model: Field required"):
        Checkpoint(folder, "n1").read()


def test_another_process_is_heard(folder: Folder) -> None:
    ours, theirs = Checkpoint(folder, "n1"), Checkpoint(folder, "n1")
    ours.write({})
    theirs.write({"u1": CLAIM})
    assert dict(ours.read()) == {"u1": CLAIM}
