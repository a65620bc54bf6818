"""What making and signing a release have in common: commands, checksums, and the list of these."""

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

SUMS = "SHA256SUMS"
_NOT_LISTED = frozenset({SUMS, f"{SUMS}.sig"})


class Refused(Exception):
    """Why it is not done, and what to do."""


def run(command: Sequence[str], folder: Path) -> str:
    """What the command prints. Raises Refused with its own words if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def checksum(file: Path) -> str:
    """SHA-256, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write_sums(folder: Path) -> list[Path]:
    """List all files of the folder with their checksums; returns them, with the list."""
    files = sorted(file for file in folder.iterdir() if file.name not in _NOT_LISTED)
    (folder / SUMS).write_text("".join(f"{checksum(file)}  {file.name}\n" for file in files))
    return [*files, folder / SUMS]
