"""The forms for issues and pull requests are of the form that GitHub reads, and name what exists."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
KINDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


@pytest.mark.parametrize("form", [form for form in FORMS if form.name != "config.yml"], ids=lambda form: form.stem)
def test_forms_are_whole(form: Path) -> None:
    read = yaml.safe_load(form.read_text())

    assert set(read) == {"name", "description", "labels", "body"}
    ids = [part["id"] for part in read["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids)) >= 3
    for part in read["body"]:
        assert part["type"] in KINDS
        assert part["attributes"].get("label") or part["attributes"].get("value")
        options = part["attributes"].get("options", ["one"])
        assert all(isinstance(option, str) for option in options)


def test_there_is_one_for_bugs_features_and_questions_of_driver_authors() -> None:
    assert [form.stem for form in FORMS] == ["bug", "config", "driver-question", "feature"]


def test_files_that_they_name_exist() -> None:
    texts = [file.read_text() for file in (ROOT / ".github").rglob("*.*") if file.is_file()]
    named = {name for text in texts for name in re.findall(r"\b(?:docs/)?[\w-]+\.md\b", text)}

    assert {"SECURITY.md", "CONTRIBUTING.md", "docs/explain.md", "docs/why.md"} <= named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_versions_of_python_are_those_of_the_distribution() -> None:
    page = (ROOT / "docs" / "support.md").read_text()
    (first,) = re.findall(r'requires-python = ">=(3\.\d+)"', (ROOT / "pyproject.toml").read_text())

    assert f"| Python | {first}, " in page
