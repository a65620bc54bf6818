"""File attributes beyond POSIX that some file systems have: quota projects, read-only subvolumes, no copy on
write.

The owner of a directory can set some of them without any capability, so that removing its content fails. A process
with CAP_FOWNER can clear them. If a file system does not have an attribute, the functions here do nothing.
"""

import fcntl
import struct
from contextlib import suppress
from typing import Final

_GET, _SET = 0x801C581F, 0x401C5820
"""FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR (linux/fs.h)."""

_ATTRIBUTES: Final = struct.Struct("=5I8s")
"""struct fsxattr, its flags first."""

_INHERITED: Final = 0x200
"""FS_XFLAG_PROJINHERIT: new files in the directory belong to its quota project."""

_GET_VOLUME, _SET_VOLUME = 0x80089419, 0x4008941A
"""BTRFS_IOC_SUBVOL_GETFLAGS and BTRFS_IOC_SUBVOL_SETFLAGS (linux/btrfs.h)."""

_FLAGS: Final = struct.Struct("=Q")
_READ_ONLY: Final = 2
"""BTRFS_SUBVOL_RDONLY."""

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS (linux/fs.h)."""

_IN_PLACE: Final = 0x800000
"""FS_NOCOW_FL."""


def stop_project_inheritance(directory: int) -> None:
    """Clears the project inheritance of the open directory, so that directories of other quota projects can be
    moved into it."""
    attributes = bytearray(_ATTRIBUTES.size)
    with suppress(OSError):
        fcntl.ioctl(directory, _GET, attributes)
        flags, *rest = _ATTRIBUTES.unpack(attributes)
        if flags & _INHERITED:
            fcntl.ioctl(directory, _SET, _ATTRIBUTES.pack(flags & ~_INHERITED, *rest))


def make_writable(directory: int) -> None:
    """Makes the open directory writable if it is a read-only subvolume of btrfs."""
    volume = bytearray(_FLAGS.size)
    with suppress(OSError):
        fcntl.ioctl(directory, _GET_VOLUME, volume)
        (flags,) = _FLAGS.unpack(volume)
        if flags & _READ_ONLY:
            fcntl.ioctl(directory, _SET_VOLUME, _FLAGS.pack(flags & ~_READ_ONLY))


def disable_copy_on_write(file: int) -> None:
    """Turns off copy on write for the open and empty file, or for new files in the open directory: btrfs would
    need other blocks to overwrite allocated ones."""
    flags = bytearray(struct.calcsize("L"))
    with suppress(OSError):
        fcntl.ioctl(file, _GET_FLAGS, flags)
        (found,) = struct.unpack_from("=I", flags)
        fcntl.ioctl(file, _SET_FLAGS, struct.pack("L", found | _IN_PLACE))
