"""A shell that types commands as a page of the documentation has them, until one fails.

What is typed, and where, is for its callers to say: a checkout (`checkout`), a tutorial (`pages`), a cluster
(`tests.cluster.reader`, whose commands may also go on running).
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAMS = Path(sys.executable).parent
"""Where `parley` and the other programs of this environment are."""


def path(*first: Path) -> str:
    """PATH, with these folders before the test's own."""
    return ":".join([*map(str, first), os.environ["PATH"]])


def tried(commands: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What became of the commands, typed in the folder. `environment` is added to this process's own."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def typed(commands: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What they printed to stdout. Fails if one of them does."""
    done = tried(commands, folder, environment)
    assert done.returncode == 0, f"{commands}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
