"""Pods of the examples and of the documents run on any cluster: of an image that it can pull."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from parley_devcluster.images import PUBLIC_BUSYBOX

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
SHORT = PUBLIC_BUSYBOX.removeprefix("docker.io/library/")
_BLOCK = re.compile(r"^```yaml.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)


def pods() -> Iterator[Any]:
    """The pods, each with the file that has it."""
    texts = [(file, file.read_text()) for file in EXAMPLES]
    texts += [(page, block) for page in PAGES for block in _BLOCK.findall(page.read_text())]
    for file, text in texts:
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and document.get("kind") == "Pod":
                name = f"{file.relative_to(ROOT)}: {document['metadata']['name']}"
                yield pytest.param(document["spec"], id=name)


@pytest.mark.parametrize("spec", [*pods()])
def test_any_cluster_can_pull_the_image_and_the_development_cluster_has_it(spec: dict[str, Any]) -> None:
    for container in spec["containers"]:
        assert container["image"] == SHORT
        assert "imagePullPolicy" not in container
