"""docs/security.md names tests that exist, and every admission policy that there is."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()


def policies() -> set[str]:
    """The names of all policies in deploy/, without the group. The chart has the same as templates."""
    files = (file for file in (ROOT / "deploy").rglob("*.yaml") if "chart" not in file.parts)
    documents = (document for file in files for document in yaml.safe_load_all(file.read_text()))
    return {
        document["metadata"]["name"].removesuffix(".parley.dev")
        for document in documents
        if isinstance(document, dict) and document.get("kind") == "ValidatingAdmissionPolicy"
    }


def test_its_tests_exist() -> None:
    named = set(re.findall(r"`((?:unit|integration|soak|e2e|admission_cases)[\w/]*(?:\.py)?)`", PAGE))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).exists()] == []


def test_it_names_every_policy() -> None:
    missing = {name for name in policies() if f"`{name}`" not in PAGE}
    assert missing == set()
