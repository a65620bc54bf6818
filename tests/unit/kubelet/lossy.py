"""A disk that loses what was not flushed when the power is cut.

What a file system may lose: the content of a file that was not flushed, and changes of names in a folder that was
not, new folders among them. Some keep the one and lose the other, so both are played. Files that were there before
are safe.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parley_kubelet.state.durable import Disk


@dataclass(slots=True)
class _File:
    content: bytes
    flushed: bool = False


class LossyDisk(Disk):
    """Real files, and what would be left of them."""

    def __init__(self) -> None:
        self._files: dict[Path, _File] = {}
        self._kept: dict[Path, Mapping[Path, _File]] = {}
        """The names on the disk, by folder."""
        self._new: set[Path] = set()
        """Folders whose own name may not be on the disk."""

    def make(self, folder: Path, mode: int) -> None:
        super().make(folder, mode)
        self._new.add(folder)

    def create(self, folder: Path, data: bytes, mode: int) -> Path:
        self._know(folder)
        path = super().create(folder, data, mode)
        self._files[path] = _File(data)
        return path

    def flush(self, path: Path) -> None:
        if path.is_dir():
            self._kept[path] = self._names(path)
            self._new = {folder for folder in self._new if folder.parent != path}
        else:
            self._files[path].flushed = True

    def rename(self, path: Path, target: Path) -> None:
        self._know(path.parent)
        super().rename(path, target)
        self._files[target] = self._files.pop(path)

    def remove(self, path: Path) -> None:
        self._know(path.parent)
        super().remove(path)
        self._files.pop(path, None)

    def lose_names(self) -> None:
        """Changes of names that were not flushed did not happen."""
        for folder in self._new:
            shutil.rmtree(folder, ignore_errors=True)
            self._kept.pop(folder, None)
            self._files = {path: file for path, file in self._files.items() if folder not in path.parents}
        for folder, kept in self._kept.items():
            for path in self._names(folder):
                path.unlink()
                del self._files[path]
            self._files.update(kept)
        self._lose_contents()

    def lose_contents(self) -> None:
        """All names are as they were last, but a file that was not flushed is empty."""
        for folder in self._kept:
            self._kept[folder] = self._names(folder)
        self._lose_contents()

    def _lose_contents(self) -> None:
        for path, file in self._files.items():
            if not file.flushed:
                file.content, file.flushed = b"", True
            path.write_bytes(file.content)

    def _know(self, folder: Path) -> None:
        if folder not in self._kept:
            for path in folder.iterdir():
                if path.is_file():
                    self._files.setdefault(path, _File(path.read_bytes(), flushed=True))
            self._kept[folder] = self._names(folder)

    def _names(self, folder: Path) -> Mapping[Path, _File]:
        return {path: file for path, file in self._files.items() if path.parent == folder}
