"""Loop devices: a file of the node as a block device (loop(4)), found again by a label.

A device that is in use when it is detached is freed with its last user; until then it can be kept again.
Only a new device is opened for writing: a kernel may refuse that for mounted ones (CONFIG_BLK_DEV_WRITE_MOUNTED),
and udev probes every device that was.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CLEAR, _SET, _GET, _CONFIGURE, _FREE = 0x4C01, 0x4C04, 0x4C05, 0x4C0A, 0x4C82
_AUTOCLEAR: Final = 4
"""LO_FLAGS_AUTOCLEAR: detached already, but in use; freed with its last user (linux/loop.h)."""

_INFO: Final = struct.Struct("=5Q4I64s64s32s2Q")
"""struct loop_info64."""

_CONFIG: Final = struct.Struct(f"=2I{_INFO.size}s8Q")
"""struct loop_config."""

_INODE, _FLAGS, _LABEL = 1, 8, 9
_GONE: Final = frozenset({errno.ENXIO, errno.ENOENT, errno.ENODEV})
_ATTEMPTS: Final = 16
"""The most attempts to get a free device: other processes may take the one that was free."""

DEVICES: Final = Path("/dev")
LONGEST_LABEL: Final = 63
"""Bytes of a device's label (linux/loop.h)."""


def available() -> bool:
    """Whether this process may attach files."""
    try:
        os.close(_control())
    except OSError:
        return False
    return True


def attach(file: Path, label: str) -> Path:
    """The loop device of the file: the one that it has, or a new one. Call it once at a time for a file. Raises
    OSError."""
    if len(label) > LONGEST_LABEL:  # the kernel would truncate it, and the device would not be found again
        raise OSError(errno.ENAMETOOLONG, "too long for a loop device", label)
    inode = file.stat().st_ino
    for path in _find(label, inode):
        if _keep_attached(path, label, inode):
            return path
    backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _attach_new(backing, label)
    finally:
        os.close(backing)


def detach(label: str) -> None:
    """Detach the devices of that label; one in use is freed with its last user. Idempotent. Raises OSError."""
    for path in _find(label):
        with _opened(path) as device:
            if _matches(_info(device), label):
                fcntl.ioctl(device, _CLEAR)


def hold(label: str) -> int | None:
    """Opens the device of that label, and returns its descriptor; None if there is none. While it is open, nobody
    else can free the device: `losetup -D` only marks it. Raises OSError."""
    for path in _find(label):
        device = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if _matches(_info(device), label):
            return device
        os.close(device)
    return None


def _find(label: str, inode: int | None = None) -> Iterator[Path]:
    """The devices with that label, and of that file if `inode` is given. A detached device may be freed, and
    attached to another file, before the caller opens it."""
    for path in sorted(DEVICES.glob("loop[0-9]*")):
        try:
            with _opened(path) as device:
                found = _info(device)
        except OSError as error:
            if error.errno in _GONE:
                continue
            raise
        if _matches(found, label, inode):
            yield path


def _info(device: int) -> tuple[int | bytes, ...] | None:
    """The fields of the device's loop_info64; None if no file is attached."""
    found = bytearray(_INFO.size)
    try:
        fcntl.ioctl(device, _GET, found)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    return _INFO.unpack(found)


def _matches(info: tuple[int | bytes, ...] | None, label: str, inode: int | None = None) -> bool:
    return info is not None and _text(info[_LABEL]) == label and inode in (None, info[_INODE])


def _keep_attached(path: Path, label: str, inode: int) -> bool:
    """Keep the device, also if it was to be freed with its last user; False if it is another file's by now. A
    second device for the file would damage its file system."""
    with _opened(path) as device:
        info = _info(device)
        if info is None or not _matches(info, label, inode):
            return False
        flags = info[_FLAGS]
        if isinstance(flags, int) and flags & _AUTOCLEAR:
            fields = (*info[:_FLAGS], flags & ~_AUTOCLEAR, *info[_FLAGS + 1 :])
            fcntl.ioctl(device, _SET, _INFO.pack(*fields))
    return True


def _attach_new(backing: int, label: str) -> Path:
    info = _INFO.pack(*(0,) * 9, label.encode(), b"", b"", 0, 0)
    for turn in range(_ATTEMPTS):
        control = _control()
        try:
            path = DEVICES / f"loop{fcntl.ioctl(control, _FREE)}"
        finally:
            os.close(control)
        try:
            with _opened(path, os.O_RDWR) as device:  # else the kernel makes it read-only
                fcntl.ioctl(device, _CONFIGURE, _CONFIG.pack(backing, 0, info, *(0,) * 8))
        except OSError as error:
            if error.errno != errno.EBUSY or turn == _ATTEMPTS - 1:
                raise
        else:
            return path
    raise AssertionError("the last turn returns or raises")


def _control() -> int:
    return os.open(DEVICES / "loop-control", os.O_RDWR | os.O_CLOEXEC)


@contextmanager
def _opened(path: Path, access: int = os.O_RDONLY) -> Iterator[int]:
    device = os.open(path, access | os.O_CLOEXEC)
    try:
        yield device
    finally:
        os.close(device)


def _text(label: int | bytes) -> str:
    return label.rstrip(b"\0").decode(errors="replace") if isinstance(label, bytes) else ""
