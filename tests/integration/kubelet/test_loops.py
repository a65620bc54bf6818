"""Loop devices of this machine: found again by their labels, had back while they are in use, gone afterwards."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from parley_kubelet.driver import loops

pytestmark = pytest.mark.skipif(not loops.available(), reason="takes root, and the kernel's loop devices")


@pytest.fixture
def label() -> Iterator[str]:
    name = f"of-a-test-{token_hex(4)}"
    yield name
    loops.detach(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "disk"
    with made.open("wb") as content:
        content.truncate(16 * 1024**2)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-F", str(made)], check=True)
    return made


def attached(file: Path) -> list[str]:
    """The devices of the file."""
    shown = subprocess.run(
        ["losetup", "-n", "-O", "NAME", "-j", str(file)], capture_output=True, text=True, check=True
    )
    return shown.stdout.split()


def test_a_file_has_one_device_until_it_is_detached(file: Path, label: str) -> None:
    device = loops.attach(file, label)
    assert loops.attach(file, label) == device
    assert attached(file) == [str(device)]
    loops.detach(label)
    assert attached(file) == []
    loops.detach(label)


def test_one_that_is_in_use_goes_with_its_last_user_and_can_be_had_back(
    file: Path, label: str, tmp_path: Path
) -> None:
    device = loops.attach(file, label)
    place = tmp_path / "mounted"
    place.mkdir()
    subprocess.run(["mount", str(device), str(place)], check=True)
    try:
        loops.detach(label)
        assert loops.attach(file, label) == device, "a second device for the file would spoil it"
        loops.detach(label)
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert attached(file) == []


def test_other_devices_are_not_opened_for_writing(
    file: Path, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, opened, open_ = loops.attach(file, label), list[str](), os.open
    other = tmp_path / "other"
    other.write_bytes(file.read_bytes())

    def noted(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            opened.append(str(path))
        return open_(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", noted)
    second = loops.attach(other, f"{label}-2")
    loops.attach(other, f"{label}-2")
    loops.detach(f"{label}-2")
    loops.detach(f"{label}-3")
    monkeypatch.undo()
    assert device != second
    assert {path for path in opened if path.startswith("/dev/loop")} == {"/dev/loop-control", str(second)}


def test_another_file_of_that_label_has_a_device_of_its_own(file: Path, label: str, tmp_path: Path) -> None:
    first = loops.attach(file, label)
    other = tmp_path / "other"
    other.write_bytes(file.read_bytes())
    assert loops.attach(other, label) != first
    loops.detach(label)
    assert attached(file) == attached(other) == []


def test_a_label_that_the_kernel_would_cut_is_refused(file: Path) -> None:
    with pytest.raises(OSError, match="too long for a loop device"):
        loops.attach(file, "x" * 64)
    assert attached(file) == []
