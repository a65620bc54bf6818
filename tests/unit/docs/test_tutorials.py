"""The tutorials' files and commands, followed literally as far as no cluster is needed; manifests are valid."""

import re
from pathlib import Path

import pytest
import yaml
from tests.support.pages import ROOT, Command, File, is_shown, steps, take

from parley.api import models

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
SLOW = "parley driver conformance"
"""Followed in tests/integration."""


def test_output_is_compared_as_the_page_shows_it() -> None:
    assert is_shown("a  b\nc\nd\n", "a b\n...\nd")
    assert is_shown("1 passed in 0.05s\n", "1 passed in ...")
    assert not is_shown("a\nb\n", "a")
    assert not is_shown("ab\n", "a b")


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_manifests_of_parleys_kinds_are_valid(page: Path) -> None:
    files = [step for step in steps(page) if isinstance(step, File) and step.name.endswith(".yaml")]
    documents = [document for file in files for document in yaml.safe_load_all(file.text)]
    for document in documents:
        if document.get("apiVersion") == "parley.dev/v1alpha1":
            getattr(models, document["kind"]).model_validate(document)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_files_that_are_named_are_made(page: Path) -> None:
    made = {step.name for step in steps(page) if isinstance(step, File)}
    for step in steps(page):
        if isinstance(step, Command):
            named = re.findall(r"(?:-f|--config) (?!-|http)(\S+)", step.line)
            assert [name for name in named if name not in made and not (ROOT / name).exists()] == []
    for step in steps(page):
        if isinstance(step, File) and step.name == "Dockerfile":
            assert set(re.findall(r"(?m)^COPY (\S+)", step.text)) <= made


def test_images_are_made_from_the_one_that_the_page_about_installing_builds() -> None:
    install = (ROOT / "docs" / "install.md").read_text()
    (built,) = re.findall(r"(?m)^docker build .* -t (\S+) \.$", install)
    pages = [install, *(page.read_text() for page in TUTORIALS)]

    assert [base for page in pages for base in re.findall(r"(?m)^FROM (\S+)$", page)] == [built] * 2


MISTAKES = [
    ("first-driver", "slots.py", "if held.data", "if not held.data"),
    ("node-part", "scratch_node.py", ", exist_ok=True", ""),
]


@pytest.mark.parametrize(("page", "name", "right", "wrong"), MISTAKES)
def test_the_mistakes_that_a_reader_is_invited_to_make_are_found(
    page: str, name: str, right: str, wrong: str, tmp_path: Path
) -> None:
    found = list(steps(ROOT / "docs" / "tutorials" / f"{page}.md"))
    for step in found:
        if isinstance(step, File):
            take(step, tmp_path)
    text = (tmp_path / name).read_text()
    assert right in text
    (tmp_path / name).write_text(text.replace(right, wrong))
    (tested,) = [step for step in found if isinstance(step, Command) and step.line.startswith("pytest")]

    with pytest.raises(AssertionError, match="1 failed"):
        take(tested, tmp_path)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_what_needs_no_cluster_is_followed(page: Path, tmp_path: Path) -> None:
    for step in steps(page):
        if isinstance(step, Command) and step.line.startswith(SLOW):
            step = Command(f"{step.line} --check shareable", "")
        take(step, tmp_path)
