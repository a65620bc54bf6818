"""A cluster in containers, made by kind of a node image that is made here, with Parley installed by its chart."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parley_devcluster import (
    binaries,
    default_directory,
    down,
    engine,
    kind,
    kind_image,
    kind_parley,
    up,
    versions,
)
from parley_devcluster.engine import Engine

CHECKOUT = Path(__file__).parents[2]

Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def container_engine() -> Engine:
    """Skips where there is none, also under CI; where the nodes' image was not built yet, which takes too long for
    `make test`; and where a cluster of kind's runs already: its name is taken."""
    found = engine.find()
    if found is None:
        pytest.skip("no container engine works here: `make machine` installs podman, as root on Debian")
    if not found.has(kind_image.name()):
        pytest.skip("the image of kind's nodes is not there: `make kind` builds it, in about a quarter of an hour")
    if kind.existing(default_directory()) is not None:
        pytest.skip("kind's cluster of `parley cluster up --kind` runs: `make cluster-down` removes it")
    return found


@pytest.fixture(scope="session")
def kubeconfig(container_engine: Engine) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="pt-"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}
    try:
        made = up(place / "c", containers=True, environment=environment)
        kind_parley.install(container_engine, made.kubeconfig, CHECKOUT, CHECKOUT / "examples" / "devices")
        yield made.kubeconfig
    finally:
        down(place / "c")
        shutil.rmtree(place)
    assert kind.nodes(container_engine) == []


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path) -> Kubectl:
    """Runs kubectl in the cluster; fails with what it said."""
    program = binaries.obtain(("kubectl",), versions.KUBERNETES)["kubectl"]

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(program), *arguments],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    return run
