"""Attributes of files and directories beyond those of POSIX, as some file systems know them.

Some of them the owner of a directory can set, without any capability, so that it can't be emptied as others are.
Whoever may change its mode can take these off again (CAP_FOWNER). Where a file system does not know an attribute,
nothing is done.
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
"""FS_XFLAG_PROJINHERIT: what is made here is of the directory's quota project."""

_GET_VOLUME, _SET_VOLUME = 0x80089419, 0x4008941A
"""BTRFS_IOC_SUBVOL_GETFLAGS and BTRFS_IOC_SUBVOL_SETFLAGS (linux/btrfs.h)."""

_FLAGS: Final = struct.Struct("=Q")
_READ_ONLY: Final = 2
"""BTRFS_SUBVOL_RDONLY."""

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS (linux/fs.h)."""

_IN_PLACE: Final = 0x800000
"""FS_NOCOW_FL."""


def take_in_all(directory: int) -> None:
    """Directories of other quota projects can be moved into the open one."""
    attributes = bytearray(_ATTRIBUTES.size)
    with suppress(OSError):
        fcntl.ioctl(directory, _GET, attributes)
        flags, *rest = _ATTRIBUTES.unpack(attributes)
        if flags & _INHERITED:
            fcntl.ioctl(directory, _SET, _ATTRIBUTES.pack(flags & ~_INHERITED, *rest))


def make_writable(directory: int) -> None:
    """The open directory, if it is a read-only subvolume of btrfs, can be changed."""
    volume = bytearray(_FLAGS.size)
    with suppress(OSError):
        fcntl.ioctl(directory, _GET_VOLUME, volume)
        (flags,) = _FLAGS.unpack(volume)
        if flags & _READ_ONLY:
            fcntl.ioctl(directory, _SET_VOLUME, _FLAGS.pack(flags & ~_READ_ONLY))


def write_in_place(file: int) -> None:
    """What the open and empty file is given of the disk, or each new one in the open directory, is also enough to
    write it again: btrfs would take other blocks for that."""
    flags = bytearray(struct.calcsize("L"))
    with suppress(OSError):
        fcntl.ioctl(file, _GET_FLAGS, flags)
        (found,) = struct.unpack_from("=I", flags)
        fcntl.ioctl(file, _SET_FLAGS, struct.pack("L", found | _IN_PLACE))
