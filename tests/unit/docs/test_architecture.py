"""The page about the architecture names files that exist, and every folder of the code."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CODE = ROOT / "driver" / "parley"

FILES = sorted(set(re.findall(r"(?<![\w/-])((?:[\w-]+/)+[\w-]+\.(?:py|md))", PAGE)))


def test_it_names_files() -> None:
    assert len(FILES) > 30


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_it_names_exists(name: str) -> None:
    assert (ROOT / name).is_file() or (CODE / name).is_file()


def test_it_names_every_package() -> None:
    packages = {path.parent.name for path in CODE.glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}`" not in PAGE and f"/{name}`" not in PAGE} == set()


PROGRAMS = (CODE, ROOT / "kubelet-plugin" / "parley_kubelet", ROOT / "devcluster" / "parley_devcluster")
NAMED_AS_IN_THE_API = {"Affinity", "Allocation", "Device", "Node", "Pod", "PodSpec", "Pool", "Reserve"}
"""What drivers call as the API does, and parts of objects that are decoded in only one place."""


def test_no_name_of_a_class_means_two_things() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in (path for folder in PROGRAMS for path in folder.rglob("*.py") if "proto" not in path.parts):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                module = "parley.api" if path.is_relative_to(CODE / "api") else str(path.relative_to(ROOT))
                found[node.name].append(module)
    twice = {name: modules for name, modules in found.items() if len(set(modules)) > 1}
    assert {name: modules for name, modules in twice.items() if name not in NAMED_AS_IN_THE_API} == {}


def test_the_page_about_testing_names_every_module_of_the_soak() -> None:
    table = (ROOT / "docs" / "testing.md").read_text().partition("In `tests/soak/`:")[2].partition("\n## ")[0]
    soak = ROOT / "tests" / "soak"
    modules = {path.relative_to(soak).with_suffix("").as_posix() for path in soak.rglob("[a-z]*.py")}

    assert set(re.findall(r"`([\w/]+)`", table)) == modules
