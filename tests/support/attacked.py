"""A process that swaps directories of a tree for links to another one, and what shows that this is as it was."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SWAPS = """
import os, sys
from contextlib import suppress
victim, canary, *names = sys.argv[1:]
os.chdir(victim)
while True:
    for name in names or ("t/x", "t/sub/x", "t/sub/sub/x"):
        for step in (
            lambda: os.rename(name, name + ".aside"),
            lambda: os.symlink(canary, name),
            lambda: os.unlink(name),
            lambda: os.rename(name + ".aside", name),
            lambda: os.symlink("../" * 9 + canary, name + ".up"),
            lambda: os.link(canary + "/deep/file", name + ".hard"),
        ):
            with suppress(OSError):
                step()
"""
"""Swaps directories of a tree for links to another one, and back, as fast as it can."""


def bystander(folder: Path) -> Path:
    """The folder, with a tree in it that nobody may touch."""
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "file").write_text("canary")
    return folder


def seen(tree: Path) -> dict[str, tuple[int, ...]]:
    """What a removal, a change of mode or owner, or a write would change, of everything in the tree."""
    found = {}
    for path in (tree, *sorted(tree.rglob("*"))):
        known = path.lstat()
        times = () if path.is_file() else (known.st_mtime_ns,)  # hard links change the time of a file's inode
        found[str(path)] = (known.st_ino, known.st_mode, known.st_uid, known.st_gid, known.st_size, *times)
    return found


@contextmanager
def attacker(script: str, *arguments: Path | str) -> Iterator[None]:
    """A process runs the script within the block."""
    process = subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)])
    try:
        yield
        assert process.poll() is None, "the attacker ended by itself"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
