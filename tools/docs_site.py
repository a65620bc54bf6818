"""Hooks of the docs site's build (mkdocs.yml): generated reference pages, and files that pages link to.

A link that leads out of `docs/` becomes a page of the site below `source/`, with the file's content, so that every
link can be checked and none depends on where the repository is published.
"""

import posixpath
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tools import site_markdown, site_reference

ROOT = Path(__file__).parents[1]
PROJECT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".go": "go", ".toml": "toml"}


def on_files(files: Files, *, config: Any, **_: Any) -> Files:
    """Adds the generated pages and all that pages link to outside of `docs/`."""
    pages = {
        "reference/api.md": site_reference.api(ROOT / "crds"),
        "reference/commands.md": site_reference.commands(),
        "reference/sdk.md": site_reference.sdk(),
        "reference/sdk-node.md": site_reference.node_sdk(),
    }
    documents = [f"docs/{file.src_uri}" for file in files if file.is_documentation_page()]
    for path in _reachable([*documents, *PROJECT]):
        pages[_page_of(path)] = _content(path)
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page's text with links into the site and blank lines where the renderer needs them."""
    source = page.file.src_uri
    if source.startswith("reference/"):
        return markdown
    if source == "reasons.md":
        markdown = site_markdown.with_anchors(markdown)
    return site_markdown.spaced(site_markdown.relinked(markdown, partial(_address, source, _place_of(source))))


def _reachable(starts: list[str]) -> list[str]:
    """All files outside of `docs/` that the pages, or Markdown files that they link to, name."""
    found: dict[str, None] = {name: None for name in starts if not name.startswith("docs/")}
    left = deque(starts)
    while left:
        path = left.popleft()
        if not path.endswith(".md"):
            continue

        def follow(address: str, path: str = path) -> str:
            target = _target(path, address)
            if target and not target.startswith("docs/") and target not in found:
                found[target] = None
                left.append(target)
            return address

        site_markdown.relinked((ROOT / path).read_text(), follow)
    return list(found)


def _target(path: str, address: str) -> str:
    """The file of the repository that a link in `path` leads to; empty if there is none: strict builds fail."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), address))
    if (ROOT / target).is_dir():
        target = posixpath.join(target, "README.md")
    return target if not target.startswith("..") and (ROOT / target).is_file() else ""


def _page_of(path: str) -> str:
    """Where in the site a file is: `docs/` at the root, the README as its index, all else below `source/`."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def _place_of(page: str) -> str:
    """The file of the repository that a page of the site was made from."""
    if page == "index.md":
        return "README.md"
    if not page.startswith("source/"):
        return f"docs/{page}"
    path = page.removeprefix("source/")
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def _address(source: str, place: str, address: str) -> str:
    target = _target(place, address)
    return posixpath.relpath(_page_of(target), posixpath.dirname(source) or ".") if target else address


def _content(path: str) -> str:
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{LANGUAGES.get(Path(path).suffix, '')}\n{text}\n````\n"
