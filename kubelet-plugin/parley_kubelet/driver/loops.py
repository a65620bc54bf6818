"""Loop devices: a file of the node as a block device (loop(4)), found again by a label.

A device that is in use when it is detached goes when its last user does; until then it can be had back.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
_TURNS: Final = 16
"""So often another free device is asked for, where others were faster."""

DEVICES: Final = Path("/dev")
LONGEST_LABEL: Final = 63
"""Bytes (linux/loop.h)."""


@dataclass(frozen=True, slots=True)
class _Attached:
    path: Path
    fields: tuple[int | bytes, ...]


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
    for one in _attached(label, inode):
        if _is_kept(one):
            return one.path
    backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _configured(backing, label)
    finally:
        os.close(backing)


def detach(label: str) -> None:
    """Nothing has the device of that label any more, or its last user leaves it. Idempotent. Raises OSError."""
    for one in _attached(label, None):
        with _opened(one.path) as device:
            fcntl.ioctl(device, _CLEAR)


def _attached(label: str, inode: int | None) -> Iterator[_Attached]:
    for path in sorted(DEVICES.glob("loop[0-9]*")):
        fields = _info(path)
        if fields is None or _text(fields[_LABEL]) != label:
            continue
        if inode is None or fields[_INODE] == inode:
            yield _Attached(path, fields)


def _info(path: Path) -> tuple[int | bytes, ...] | None:
    """None of a device that nothing is attached to."""
    found = bytearray(_INFO.size)
    try:
        with _opened(path, os.O_RDONLY) as device:  # udev probes whatever was open for writing
            fcntl.ioctl(device, _GET, found)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT, errno.ENODEV):
            return None
        raise
    return _INFO.unpack(found)


def _is_kept(one: _Attached) -> bool:
    """Have back what goes with its last user; False if it has gone. A second device for a file would spoil it."""
    flags = one.fields[_FLAGS]
    if not isinstance(flags, int) or not flags & _AUTOCLEAR:
        return True
    fields = (*one.fields[:_FLAGS], flags & ~_AUTOCLEAR, *one.fields[_FLAGS + 1 :])
    try:
        with _opened(one.path) as device:
            fcntl.ioctl(device, _SET, _INFO.pack(*fields))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return False
        raise
    now = _info(one.path)
    return now is not None and now[_INODE] == one.fields[_INODE]


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
