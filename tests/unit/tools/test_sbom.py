"""The bill of materials names what `pip install parley` installs, and nothing that only development needs."""

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools import sbom

LOCK = (Path(__file__).parents[3] / "requirements.lock").read_text()

SMALL = """\
anyio==4.1 \\
    --hash=sha256:{a}
    # via httpx
httpx==1.0 ; python_version < '3.12' \\
    --hash=sha256:{b} \\
    --hash=sha256:{c}
    # via
    #   parley (pyproject.toml)
    #   pytest
pytest==9.2 \\
    --hash=sha256:{a}
    # via parley (pyproject.toml:dev)
""".format(a="a" * 64, b="b" * 64, c="c" * 64)


def installed(name: str = "parley") -> set[str]:
    """What a distribution needs on this machine, and what that needs."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for text in distribution(waiting.pop()).requires or ():
            requirement = Requirement(text)
            needed = canonicalize_name(requirement.name)
            if needed not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                found.add(needed)
                waiting.append(needed)
    return found


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sbom.bill(LOCK, "0.2.0"))
    return found


def test_it_has_all_that_is_installed_with_the_wheel_at_its_version(bill: dict[str, Any]) -> None:
    listed = {component["name"]: component["version"] for component in bill["components"]}

    assert installed() <= listed.keys()
    assert len(installed()) > 20
    assert {name: distribution(name).version for name in installed()}.items() <= listed.items()
    assert not listed.keys() & {"pytest", "mypy", "hatchling", "parley", "parley-devcluster"}


def test_it_says_what_needs_what_and_which_files_are_meant() -> None:
    found = json.loads(sbom.bill(SMALL, "0.2.0"))

    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["purl"] == "pkg:pypi/parley@0.2.0"
    assert [component["purl"] for component in found["components"]] == ["pkg:pypi/anyio@4.1", "pkg:pypi/httpx@1.0"]
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in found["dependencies"]}
    assert needs["pkg:pypi/parley@0.2.0"] == ["pkg:pypi/httpx@1.0"]
    assert needs["pkg:pypi/httpx@1.0"] == ["pkg:pypi/anyio@4.1"]
    (reference,) = found["components"][1]["externalReferences"]
    assert sorted(digest["content"] for digest in reference["hashes"]) == ["b" * 64, "c" * 64]
