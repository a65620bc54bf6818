"""The checkpoint: what it keeps, and that it is never trusted when it cannot be."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley_kubelet.checkpoint import Checkpoint, CheckpointError, PreparedClaim, Result
from parley_kubelet.devices import NodeDevice
from parley_kubelet.durable import Folder

CLAIM = PreparedClaim(
    uid="u1",
    namespace="team",
    name="training",
    shared=True,
    results=(Result(request="exclusive", pool="n1", device="gpu-0"),),
    devices=(NodeDevice(name="gpu-0", model="a100", shares=2, device_nodes=("/dev/null",), env={"A": "b"}),),
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_nothing_is_prepared_at_first(folder: Folder) -> None:
    assert dict(Checkpoint(folder).read()) == {}


def test_what_was_written_is_read_by_the_next_process(folder: Folder) -> None:
    Checkpoint(folder).write({"u1": CLAIM})
    assert dict(Checkpoint(Folder(folder.path)).read()) == {"u1": CLAIM}


def test_the_format(folder: Folder) -> None:
    Checkpoint(folder).write({"u1": CLAIM})
    assert orjson.loads((folder.path / "checkpoint.json").read_bytes()) == {
        "version": 1,
        "checksum": "sha256:9d9967da5af12e9c5a6f6a8e62db2f9ca7600055b2ca64556ebda05a7b9eb82e",
        "claims": [
            {
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
        ],
    }


def damage(folder: Folder, change: Callable[[bytes], bytes]) -> None:
    path = folder.path / "checkpoint.json"
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda _: b"", "it is not JSON (Input is a zero-length, empty document: line 1 column 1 (char 0))"),
        (lambda _: b"7", "it is not a JSON object"),
        (lambda _: b"{}", "version=None was never written"),
        (lambda whole: whole.replace(b'"version": 1', b'"version": 0'), "version=0 was never written"),
        (lambda _: b'{"version": 1}', "it has no list of claims"),
        (
            lambda whole: whole.replace(b"gpu-0", b"gpu-1"),
            "checksum='sha256:9d9967da5af12e9c5a6f6a8e62db2f9ca7600055b2ca64556ebda05a7b9eb82e'"
            " should be 'sha256:e7bd49d2fe0c10cb2cc3190a5a9119f4deb446e2bd52f31a960fb1a8634cc9b7'",
        ),
    ],
)
def test_a_damaged_file_is_refused(folder: Folder, change: Callable[[bytes], bytes], how: str) -> None:
    Checkpoint(folder).write({"u1": CLAIM})
    damage(folder, change)
    with pytest.raises(CheckpointError) as error:
        Checkpoint(folder).read()
    assert str(error.value) == (
        f"checkpoint {folder.path}/checkpoint.json is damaged, {how}: drain the node of pods with claims,"
        " remove the file, and start parley-kubelet again"
    )


def test_a_newer_file_is_refused(folder: Folder) -> None:
    Checkpoint(folder).write({"u1": CLAIM})
    damage(folder, lambda whole: whole.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(CheckpointError) as error:
        Checkpoint(folder).read()
    assert str(error.value) == (
        f"checkpoint {folder.path}/checkpoint.json: version=2 is newer than 1, which this parley-kubelet writes:"
        " start the newer version again, or drain the node before going back"
    )


def test_fields_that_a_later_plugin_added_are_ignored(folder: Folder) -> None:
    claims = [{**CLAIM.model_dump(mode="json", by_alias=True), "health": "Healthy"}]
    checksum = "sha256:" + hashlib.sha256(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS)).hexdigest()
    folder.write("checkpoint.json", orjson.dumps({"version": 1, "checksum": checksum, "claims": claims}))
    assert dict(Checkpoint(folder).read()) == {"u1": CLAIM}


@given(at=st.integers(min_value=0), tear=st.booleans())
def test_no_damage_is_read_as_something_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, tear: bool
) -> None:
    folder = Folder(tmp_path_factory.mktemp("state"))
    Checkpoint(folder).write({"u1": CLAIM})

    def change(whole: bytes) -> bytes:
        cut = at % len(whole)
        return whole[:cut] if tear else whole[:cut] + bytes([whole[cut] ^ 1]) + whole[cut + 1 :]

    damage(folder, change)
    try:
        claims = dict(Checkpoint(folder).read())
    except CheckpointError:
        return
    assert claims == {"u1": CLAIM}
