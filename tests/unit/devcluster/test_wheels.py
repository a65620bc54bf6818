"""A cluster runs one distribution, the development cluster is another: their wheels as hatchling builds them."""

import subprocess
import sys
import tomllib
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import grimp
import pytest

from parley.cli.lazily import PLACES

ROOT = Path(__file__).parents[3]

LAZILY = {place.partition(":")[0] for place in PLACES.values()}
COMMANDS = {"parley.cli.main", "parley.__main__", "parley_kubelet.main", "parley_kubelet.__main__", *LAZILY}
IMPORTED_BY_USERS = {
    "parley.api.crd.__main__",  # `make crds`
    "parley.sdk.testing",
    "parley_kubelet.testing.promises",
    "parley_kubelet.testing",
}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def build(project: Path, folder: Path) -> ZipFile:
    """The wheel of a project of this checkout; hatchling alone makes it, nothing is fetched."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return ZipFile(wheel)


@pytest.fixture(scope="module")
def parley(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    return build(ROOT, tmp_path_factory.mktemp("parley"))


@pytest.fixture(scope="module")
def devcluster(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    return build(ROOT / "devcluster", tmp_path_factory.mktemp("devcluster"))


def folders(wheel: ZipFile) -> set[str]:
    return {name.split("/")[0] for name in wheel.namelist()}


def needs(wheel: ZipFile) -> set[str]:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(name).decode())
    return {need.split(">=")[0] for need in metadata.get_all("Requires-Dist", [])}


def modules(wheel: ZipFile) -> set[str]:
    files = {name.removesuffix(".py").replace("/", ".") for name in wheel.namelist() if name.endswith(".py")}
    return {file.removesuffix(".__init__") for file in files}


def reached(graph: grimp.ImportGraph, start: set[str]) -> set[str]:
    """The modules that importing these imports, at once or later, with the packages around them."""
    found: set[str] = set()
    rest = set(start)
    while rest:
        module = rest.pop()
        found.add(module)
        package = {module.rpartition(".")[0]} - {""}
        rest |= (graph.find_modules_directly_imported_by(module) | package) - found
    return found


def test_what_a_cluster_runs_has_no_devcluster(parley: ZipFile) -> None:
    assert folders(parley) == {"parley", "parley_kubelet", f"parley-{VERSION}.dist-info"}
    assert needs(parley).isdisjoint({"cryptography", "parley-devcluster"})
    assert [name for name in parley.namelist() if "devcluster" in name] == []


def test_what_a_cluster_runs_has_nothing_that_only_tests_use(parley: ZipFile) -> None:
    graph = grimp.build_graph("parley", "parley_kubelet")
    written = {module for module in modules(parley) if ".proto" not in module}

    assert written - reached(graph, COMMANDS | IMPORTED_BY_USERS) == set()


def test_the_doctor_has_what_is_installed_to_compare_with(parley: ZipFile) -> None:
    base = ROOT / "deploy" / "base"
    for file in base.glob("*.yaml"):
        assert parley.read(f"parley/doctor/base/{file.name}") == file.read_bytes()


def test_the_devcluster_has_its_data_and_brings_its_command(devcluster: ZipFile) -> None:
    assert folders(devcluster) == {"parley_devcluster", f"parley_devcluster-{VERSION}.dist-info"}
    assert {"parley_devcluster/kind_node/Dockerfile", "parley_devcluster/cli.py"} <= set(devcluster.namelist())
    entry_points = devcluster.read(f"parley_devcluster-{VERSION}.dist-info/entry_points.txt").decode()
    assert entry_points == "[parley.commands]\ncluster = parley_devcluster.cli:app\n"


def test_the_devcluster_needs_parley_and_cryptography(devcluster: ZipFile) -> None:
    assert {"parley", "cryptography"} <= needs(devcluster)
