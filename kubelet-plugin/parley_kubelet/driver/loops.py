"""Loop devices: a file of the node as a block device (loop(4)), found again by a label.

A device that is in use when it is detached goes when its last user does; until then it can be had back.
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
"""Detached already, and in use: it goes with its last user (linux/loop.h)."""

_INFO: Final = struct.Struct("=5Q4I64s64s32s2Q")
"""struct loop_info64."""

_CONFIG: Final = struct.Struct(f"=2I{_INFO.size}s8Q")
"""struct loop_config."""

_INODE, _FLAGS, _LABEL = 1, 8, 9
_GONE: Final = frozenset({errno.ENXIO, errno.ENOENT, errno.ENODEV})
_TURNS: Final = 16
"""So often another free device is asked for, where others were faster."""

DEVICES: Final = Path("/dev")
LONGEST_LABEL: Final = 63
"""Bytes (linux/loop.h)."""


def available() -> bool:
    """Whether this process may attach files."""
    try:
        os.close(_control())
    except OSError:
        return False
    return True


def attach(file: Path, label: str) -> Path:
    """The device with the content of the file: the one that it has, or a new one. One call at a time for a file.
    Raises OSError."""
    if len(label) > LONGEST_LABEL:  # the kernel would cut it, and it would not be found again
        raise OSError(errno.ENAMETOOLONG, "too long for a loop device", label)
    inode = file.stat().st_ino
    for path in _attached(label, inode):
        if _is_kept(path, label, inode):
            return path
    backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _configured(backing, label)
    finally:
        os.close(backing)


def detach(label: str) -> None:
    """Nothing has the device of that label any more, or its last user leaves it. Idempotent. Raises OSError."""
    for path in _attached(label):
        with _opened(path) as device:
            if _is(_info(device), label):
                fcntl.ioctl(device, _CLEAR)


def _attached(label: str, inode: int | None = None) -> Iterator[Path]:
    """Devices with that label, and of that file if one is named. One that nobody has open may be another's by the
    time that it is opened again, if it was to go with its last user."""
    for path in sorted(DEVICES.glob("loop[0-9]*")):
        try:
            with _opened(path, os.O_RDONLY) as device:  # udev probes whatever was open for writing
                found = _info(device)
        except OSError as error:
            if error.errno in _GONE:
                continue
            raise
        if _is(found, label, inode):
            yield path


def _info(device: int) -> tuple[int | bytes, ...] | None:
    """None of a device that nothing is attached to."""
    found = bytearray(_INFO.size)
    try:
        fcntl.ioctl(device, _GET, found)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    return _INFO.unpack(found)


def _is(info: tuple[int | bytes, ...] | None, label: str, inode: int | None = None) -> bool:
    return info is not None and _text(info[_LABEL]) == label and inode in (None, info[_INODE])


def _is_kept(path: Path, label: str, inode: int) -> bool:
    """Have back what goes with its last user; False if it has gone. A second device for a file would spoil it."""
    with _opened(path) as device:
        info = _info(device)
        if info is None or not _is(info, label, inode):
            return False
        flags = info[_FLAGS]
        if isinstance(flags, int) and flags & _AUTOCLEAR:
            fields = (*info[:_FLAGS], flags & ~_AUTOCLEAR, *info[_FLAGS + 1 :])
            fcntl.ioctl(device, _SET, _INFO.pack(*fields))
    return True


def _configured(backing: int, label: str) -> Path:
    info = _INFO.pack(*(0,) * 9, label.encode(), b"", b"", 0, 0)
    for turn in range(_TURNS):
        control = _control()
        try:
            path = DEVICES / f"loop{fcntl.ioctl(control, _FREE)}"
        finally:
            os.close(control)
        try:
            with _opened(path) as device:
                fcntl.ioctl(device, _CONFIGURE, _CONFIG.pack(backing, 0, info, *(0,) * 8))
        except OSError as error:
            if error.errno != errno.EBUSY or turn == _TURNS - 1:
                raise
        else:
            return path
    raise AssertionError("the last turn returns or raises")


def _control() -> int:
    return os.open(DEVICES / "loop-control", os.O_RDWR | os.O_CLOEXEC)


@contextmanager
def _opened(path: Path, access: int = os.O_RDWR) -> Iterator[int]:
    device = os.open(path, access | os.O_CLOEXEC)
    try:
        yield device
    finally:
        os.close(device)


def _text(label: int | bytes) -> str:
    return label.rstrip(b"\0").decode(errors="replace") if isinstance(label, bytes) else ""
