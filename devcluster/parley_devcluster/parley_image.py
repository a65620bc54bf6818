"""Builds `deploy/Dockerfile` with a container engine, as a user does, on a base image that needs no registry.

The build uses the package index of this machine's pip: its settings are passed as a build secret, so that neither
the image nor the checkout names an index.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley_devcluster import debian_image
from parley_devcluster.engine import Engine

_OF_THIS_MACHINE = ("cache-dir", "find-links")


def build(engine: Engine, checkout: Path, tag: str, base: str | None = None) -> None:
    """Build a checkout's image, on a base image of Debian's packages if no other is given; raises
    `EngineError`."""
    chosen = base or debian_image.ensure(engine, debian_image.PYTHON)
    with package_index() as secret:
        engine.run(
            "build",
            *("--file", str(checkout / "deploy" / "Dockerfile"), "--tag", tag, "--build-arg", f"BASE={chosen}"),
            *("--network", "host", *secret),
            str(checkout),
        )


@contextmanager
def package_index() -> Iterator[tuple[str, ...]]:
    """The options of a build that uses the package index of this machine's pip."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = Path(scratch) / "pip.conf"
        settings.write_text(pip_settings(_pip_config()))
        yield "--secret", f"id=pip.conf,src={settings}"


def pip_settings(listed: str) -> str:
    """The output of `pip config list` as a pip.conf, without settings that name folders of this machine."""
    pairs = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    values = {name.rpartition(".")[2]: value.strip("'\"") for name, value in pairs.items()}
    kept = {name: value for name, value in values.items() if name not in _OF_THIS_MACHINE}
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in kept.items())


def _pip_config() -> str:
    """The output of `pip config list`; empty if this Python has no pip, which means pip's defaults."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
