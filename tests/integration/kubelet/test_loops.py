"""Loop devices of this machine: found again by their labels, had back while they are in use, gone afterwards."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from parley_kubelet.driver import loops
from parley_kubelet.driver.images import AttachedImages

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


@pytest.fixture
def other(file: Path, tmp_path: Path) -> Iterator[Path]:
    """Another claim's file, which has no device afterwards."""
    made = tmp_path / "other"
    made.write_bytes(file.read_bytes())
    yield made
    for device in attached(made):
        subprocess.run(["losetup", "-d", device], check=True)


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
    file: Path, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = loops.attach(file, label)
    place = tmp_path / "mounted"
    place.mkdir()
    subprocess.run(["mount", str(device), str(place)], check=True)
    forbid_writing(device, monkeypatch)
    try:
        loops.detach(label)
        assert loops.attach(file, label) == device, "a second device for the file would spoil it"
        loops.detach(label)
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert attached(file) == []


def forbid_writing(device: Path, patch: pytest.MonkeyPatch) -> None:
    """As kernels do for a mounted device without CONFIG_BLK_DEV_WRITE_MOUNTED."""
    open_ = os.open

    def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if path == device and flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        return open_(path, flags, *more, **named)

    patch.setattr(os, "open", opened)


def test_a_device_that_an_administrator_detaches_is_free_for_no_other_claim(
    file: Path, label: str, other: Path, tmp_path: Path
) -> None:
    """As `losetup -D` does, while the claim's container is between its end and its next start."""
    devices = AttachedImages()
    device = devices.attach(file.parent, label)
    subprocess.run(["losetup", "-d", str(device)], check=True)
    assert loops.attach(other, f"{label}-2") != device
    assert attached(file) == [str(device)]
    place = tmp_path / "mounted"
    place.mkdir()
    subprocess.run(["mount", str(device), str(place)], check=True)
    subprocess.run(["umount", str(place)], check=True)
    assert attached(file) == [str(device)]
    loops.detach(f"{label}-2")
    devices.detach(label)
    assert attached(file) == []


def test_a_device_is_kept_open_by_the_process_that_follows_it(file: Path, label: str) -> None:
    device, restarted = loops.attach(file, label), AttachedImages()
    restarted.follow({label, f"{label}-2"})
    subprocess.run(["losetup", "-d", str(device)], check=True)
    assert attached(file) == [str(device)]
    restarted.follow(frozenset())
    assert attached(file) == []


def test_other_devices_are_not_opened_for_writing(
    file: Path, label: str, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, opened, open_ = loops.attach(file, label), list[str](), os.open

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


def test_another_file_of_that_label_has_a_device_of_its_own(file: Path, label: str, other: Path) -> None:
    first = loops.attach(file, label)
    assert loops.attach(other, label) != first
    loops.detach(label)
    assert attached(file) == attached(other) == []


def before_it_is_opened_again(device: Path, happens: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Something comes between a look at the device and what is done to it."""
    open_, seen = os.open, list[Any]()

    def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if path == device and path in seen:
            patch.undo()
            happens()
        seen.append(path)
        return open_(path, flags, *more, **named)

    patch.setattr(os, "open", opened)


def test_what_has_become_anothers_meanwhile_is_not_detached(
    file: Path, label: str, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = loops.attach(file, label)

    def passes_on() -> None:
        subprocess.run(["losetup", "-d", str(device)], check=True)
        subprocess.run(["losetup", str(device), str(other)], check=True)

    before_it_is_opened_again(device, passes_on, monkeypatch)
    loops.detach(label)
    assert attached(other) == [str(device)]


@pytest.mark.parametrize("goes_to_another", [False, True])
def test_what_is_gone_meanwhile_is_not_had_back(
    file: Path, label: str, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_to_another: bool
) -> None:
    device, place = loops.attach(file, label), tmp_path / "mounted"
    place.mkdir()
    subprocess.run(["mount", str(device), str(place)], check=True)
    loops.detach(label)

    def last_user_leaves() -> None:
        subprocess.run(["umount", str(place)], check=True)
        if goes_to_another:
            subprocess.run(["losetup", str(device), str(other)], check=True)

    before_it_is_opened_again(device, last_user_leaves, monkeypatch)
    mine = loops.attach(file, label)
    assert attached(file) == [str(mine)]
    loops.detach(label)
    assert attached(other) == ([str(device)] if goes_to_another else [])


def test_a_label_that_the_kernel_would_cut_is_refused(file: Path) -> None:
    with pytest.raises(OSError, match="too long for a loop device"):
        loops.attach(file, "x" * 64)
    assert attached(file) == []
