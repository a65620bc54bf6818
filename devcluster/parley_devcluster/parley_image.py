"""Builds `deploy/Dockerfile` with a container engine, as a user does, on a base that needs no registry.

The build takes packages from where pip on this machine takes them: what `pip config` says goes in as a build
secret, so that neither the image nor the tree names an index.
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
    """Build the image of a checkout, on a base of Debian's packages if none is named; raises `EngineError`."""
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
    """The options of a build that takes packages from where pip on this machine takes them."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = Path(scratch) / "pip.conf"
        settings.write_text(pip_settings(_pip_config()))
        yield "--secret", f"id=pip.conf,src={settings}"


def pip_settings(listed: str) -> str:
    """As a pip.conf what `pip config list` printed, but for folders of this machine."""
    pairs = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    values = {name.rpartition(".")[2]: value.strip("'\"") for name, value in pairs.items()}
    kept = {name: value for name, value in values.items() if name not in _OF_THIS_MACHINE}
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in kept.items())


def _pip_config() -> str:
    """What pip prints; nothing where this Python has none, which is pip's own default."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
