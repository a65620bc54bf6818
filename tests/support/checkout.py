"""A reader in a checkout: a shell that runs commands as a page of the documentation has them.

Its Makefile, examples and manifests are this checkout's, and so is the environment, which counts as made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.shell import PROGRAMS, typed

ROOT = Path(__file__).parents[2]
_LINKED = ("Makefile", "requirements.lock", "pyproject.toml", "devcluster", "examples", "deploy", "crds")


@dataclass(frozen=True)
class Shell:
    """What is exported stays exported. `environment` is added to this process's own."""

    folder: Path
    environment: Mapping[str, str]
    exports: list[str] = field(default_factory=list)

    @classmethod
    def in_a_checkout(cls, folder: Path, **environment: str) -> "Shell":
        """In that folder, which is empty."""
        for name in _LINKED:
            (folder / name).symlink_to(ROOT / name)
        (folder / ".venv").mkdir()
        (folder / ".venv" / "bin").symlink_to(PROGRAMS)
        (folder / ".venv" / ".installed").touch()
        return cls(folder, environment)

    def __call__(self, command: str) -> str:
        """What the command printed to stdout; it must not fail."""
        if command.startswith("export "):
            self.exports.append(command)
        return typed("\n".join([*self.exports, command]), self.folder, self.environment)
