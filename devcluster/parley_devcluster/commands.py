"""Runs programs to their end: returns their output, or raises the caller's own error."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_LINES = 15
"""How many of the last lines of a program's output an error contains."""


def run(
    command: Sequence[str],
    failure: Callable[[str], Exception],
    *,
    limit: float | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: str | Path = "",
    shown: str | None = None,
) -> str:
    """Run the program and return its stdout.

    `stdin` is a text or a file, `limit` is in seconds, and `environment` replaces this process's. Raises what
    `failure` makes of a message where the program exits with another status than 0 or is not done in time. The
    message begins with the command, or with `shown`.
    """
    shown = " ".join(command) if shown is None else shown
    try:
        with _given(stdin) as file:
            done = subprocess.run(
                command,
                stdin=file,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise failure(f"{shown} was not done within {limit:.0f} s") from error
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_LINES:])
        raise failure(f"{shown} failed (exit status {done.returncode}): {last}")
    return done.stdout


@contextmanager
def _given(stdin: str | Path) -> Iterator[IO[str]]:
    """The standard input as an open file."""
    with stdin.open() if isinstance(stdin, Path) else tempfile.TemporaryFile("w+") as file:
        if isinstance(stdin, str):
            file.write(stdin)
            file.seek(0)
        yield file
