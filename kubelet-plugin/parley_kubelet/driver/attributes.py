"""What the owner of a directory can set on it, without any capability, that keeps it from being emptied.

Whoever may change a directory's mode can take these off again (CAP_FOWNER). A file system that does not know them
has none.
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
