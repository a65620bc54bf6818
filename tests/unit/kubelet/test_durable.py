"""Files that are whole or absent."""

import subprocess
import sys
from pathlib import Path

import pytest

from parley_kubelet.durable import Folder


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "made" / "here")
    folder.write("a", b"first and long")
    folder.write("a", b"second", mode=0o644)
    assert folder.read("a") == b"second"
    assert (folder.path / "a").stat().st_mode & 0o777 == 0o644
    assert folder.names("") == ("a",)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        folder.write("a", b"cannot replace a folder")
    assert folder.names("") == ("a",)


def test_what_a_crash_left_is_swept(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a", b"kept")
    (tmp_path / ".parley-new-x").write_bytes(b"half")
    (tmp_path / "of-another-vendor.json").write_bytes(b"{}")
    folder.sweep()
    assert folder.names("") == ("a", "of-another-vendor.json")


def test_a_file_that_is_gone_is_read_as_none_and_removed_without_error(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.remove("a")
    assert folder.read("a") is None


def test_the_lock_keeps_another_process_out(tmp_path: Path) -> None:
    attempt = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", attempt, str(tmp_path / "lock")]
    with Folder(tmp_path).locked():
        assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    assert subprocess.run(command, check=False).returncode == 0
