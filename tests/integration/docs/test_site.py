"""The docs site in a real browser: every page opens without a complaint, search finds, links lead on.

The site is built strictly, and served as the files that it is. What links point to is checked in tests/unit/docs.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from tests.browser.chromium import require_browser
from tests.browser.devtools import Browser, Page, browser

from parley.api import reasons

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def program() -> Path:
    return require_browser()


@pytest.fixture(scope="module")
def folder(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's files. Skips without mkdocs; under CI that is a failure."""
    if not os.environ.get("CI") and importlib.util.find_spec("mkdocs") is None:
        pytest.skip("the docs group is not installed: `make docs` installs it")
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(made)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


@asynccontextmanager
async def served(folder: Path, *, searchable: bool) -> AsyncIterator[str]:
    """The address of the site. Each page that is opened makes an index of all that can be found: of nothing, where
    it is not `searchable`, which is most of a page's work."""

    async def page(request: web.Request) -> web.StreamResponse:
        path = folder / request.path.lstrip("/")
        found = path / "index.html" if path.is_dir() else path
        if not found.is_file():
            raise web.HTTPNotFound
        if found.name == "search_index.json" and not searchable:
            return web.json_response({**orjson.loads(found.read_bytes()), "docs": []})
        return web.FileResponse(found)

    app = web.Application()
    app.router.add_get("/{path:.*}", page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(folder: Path) -> AsyncIterator[str]:
    """Its address, where nothing can be searched for."""
    async with served(folder, searchable=False) as address:
        yield address


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def searchable_site(folder: Path) -> AsyncIterator[str]:
    """Its address."""
    async with served(folder, searchable=True) as address:
        yield address


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def chromium(program: Path) -> AsyncIterator[Browser]:
    async with browser(program) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def tab(chromium: Browser) -> AsyncIterator[Page]:
    async with chromium.page() as page:
        yield page


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose `!ENV` is of no interest here."""


_Loader.add_constructor("!ENV", lambda loader, node: None)


def pages(nav: Sequence[Any]) -> Iterator[str]:
    """The files of the navigation, in its order."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from pages(value) if isinstance(value, list) else [value]


NAV = list(dict.fromkeys(pages(yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)["nav"])))


def address(file: str) -> str:
    """Where a page of the navigation is, below the site's address."""
    place = file.removesuffix(".md")
    for index in ("index", "README"):
        place = place.removesuffix(index) if place.split("/")[-1] == index else place
    return f"{place.rstrip('/')}/" if place else ""


def complaints(tab: Page) -> list[str]:
    """Without that about the list of versions, which mike publishes beside the site."""
    return [text for text in tab.complaints() if "versions.json" not in text]


async def test_every_page_of_the_navigation_opens_and_loads_from_the_site_alone(site: str, tab: Page) -> None:
    broken = []
    for file in NAV:
        await tab.open(f"{site}{address(file)}")
        heading = await tab.text("h1")
        if complaints(tab) or heading in ("None", "", "404 - Not found"):
            broken.append((file, heading, complaints(tab)))
            tab.events.clear()

    assert len(NAV) > 35
    assert broken == []
    assert {urlsplit(asked).netloc for asked in tab.asked_for()} <= {urlsplit(site).netloc, ""}


async def search(tab: Page, words: str) -> list[str]:
    """The pages that are found, best first."""
    await tab.value(
        "document.querySelector('[data-md-toggle=search]').checked || "
        "document.querySelector('label[for=__search]').click()"
    )
    await tab.until("document.activeElement === document.querySelector('.md-search__input')")
    typed = orjson.dumps(words).decode()
    key = "new KeyboardEvent('keyup', {bubbles: true})"
    await tab.value(
        f"(input => {{ input.value = {typed}; input.dispatchEvent({key}); }})"
        "(document.querySelector('.md-search__input'))"
    )
    await tab.until("document.querySelectorAll('.md-search-result__link').length > 0")
    found = await tab.value("[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)")
    return [str(link) for link in found]


@pytest.mark.parametrize("code", [reasons.NOTHING_VIABLE, reasons.DRIVER_NOT_ANSWERING])
async def test_search_finds_a_reason_code_where_it_is_explained(
    searchable_site: str, tab: Page, code: str
) -> None:
    await tab.open(searchable_site)

    found = await search(tab, code)

    assert any(urlsplit(link).path in ("/reasons/", "/runbook/") for link in found), found
    first = next(link for link in found if urlsplit(link).path in ("/reasons/", "/runbook/"))
    await tab.open(first)
    assert code in await tab.text("article")
    assert complaints(tab) == []


async def test_links_of_the_first_page_lead_to_pages_with_their_anchors(site: str, tab: Page) -> None:
    await tab.open(site)
    links = await tab.value(
        "[...new Set([...document.querySelectorAll('article a[href]')].map(link => link.href))]"
        ".filter(link => link.startsWith(location.origin) && !link.includes('/source/'))"
    )

    for link in links:
        await tab.open(link)
        anchor = urlsplit(link).fragment
        assert await tab.text("h1") not in ("None", ""), link
        assert not anchor or await tab.value(f"document.getElementById({orjson.dumps(anchor).decode()}) !== null")
    assert len(links) > 5
    assert complaints(tab) == []


async def test_a_reader_goes_on_from_a_tutorial_by_its_link(site: str, tab: Page) -> None:
    await tab.open(f"{site}tutorials/first-driver/")

    await tab.value(
        "[...document.querySelectorAll('article a')].find(a => a.innerText === 'the protocol').click()"
    )

    await tab.until("location.pathname === '/driver-protocol/' && document.readyState === 'complete'")
    assert await tab.text("h1") == "The driver protocol¶"
