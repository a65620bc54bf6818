"""The docs site builds strictly, all links and anchors lead somewhere, nothing is loaded from elsewhere."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from parley.api import reasons

ROOT = Path(__file__).parents[3]

if not os.environ.get("CI") and importlib.util.find_spec("mkdocs") is None:
    pytest.skip("the docs group is not installed: `make docs` installs it", allow_module_level=True)


class Page(HTMLParser):
    """What a page links to and loads, what can be linked to, and the text of its paragraphs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.paragraphs: list[str] = []
        self._in_paragraph = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img") and "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loaded.append(given["href"])
        if tag == "p":
            self._in_paragraph = True
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_paragraph &= tag != "p"

    def handle_data(self, data: str) -> None:
        if self._in_paragraph:
            self.paragraphs[-1] += data


Site = dict[Path, Page]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(made)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def site(folder: Path) -> Site:
    return {path: Page(path.read_text()) for path in folder.rglob("*.html") if path.name != "404.html"}


def inside(page: Path, addresses: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Each address that stays on the site, with the file that it means and the anchor there."""
    for address in addresses:
        split = urlsplit(address)
        if split.scheme or split.netloc:
            continue
        target = (page.parent / unquote(split.path)).resolve() if split.path else page
        yield address, target / "index.html" if target.is_dir() else target, unquote(split.fragment)


def test_every_link_and_anchor_leads_somewhere(site: Site) -> None:
    looked_at, broken = 0, []
    for path, page in site.items():
        for address, target, anchor in inside(path, page.links):
            looked_at += 1
            if not target.is_file() or (anchor and anchor not in site[target].anchors | {"__skip"}):
                broken.append(f"{path.parent.name}: {address}")

    assert looked_at > 1000
    assert broken == []


def test_pictures_styles_and_scripts_are_of_the_site(site: Site) -> None:
    for path, page in site.items():
        here = list(inside(path, page.loaded))
        assert len(here) == len(page.loaded) > 0, page.loaded
        assert [address for address, target, _ in here if not target.is_file()] == []


def test_lists_tables_and_code_are_shown_as_such(site: Site) -> None:
    lines = [
        (path.parent.name, line)
        for path, page in site.items()
        for text in page.paragraphs
        for line in text.splitlines()
    ]

    assert len(lines) > 300
    assert [line for line in lines if line[1].lstrip().startswith(("- ", "|", "```"))] == []


def test_every_reason_code_can_be_linked_to(site: Site, folder: Path) -> None:
    codes = {value for name, value in vars(reasons).items() if name.isupper()}

    assert codes <= site[folder / "reasons" / "index.html"].anchors


def test_every_kind_command_and_name_of_the_sdk_has_its_section(site: Site, folder: Path) -> None:
    kinds = {yaml.safe_load(file.read_text())["spec"]["names"]["kind"] for file in (ROOT / "crds").glob("*.yaml")}
    expected = {
        "api": {kind.lower() for kind in kinds},
        "commands": {"parley-demo", "parley-explain", "parley-driver-run", "parley-driver-permissions"},
        "sdk": {"parley.sdk.Driver", "parley.sdk.Driver.viable", "parley.sdk.testing.check_driver"},
        "sdk-node": {"parley_kubelet.hooks.NodeDriver.prepare", "parley_kubelet.testing.check_node_driver"},
    }

    assert len(kinds) == 5
    for page, names in expected.items():
        assert names <= site[folder / "reference" / page / "index.html"].anchors
