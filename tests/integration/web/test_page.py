"""The page in a real browser: live, reachable by keyboard, legible in light and dark, and without scripts, too."""

import pytest
from tests.browser.devtools import Browser, Page
from tests.unit.scheduler.conftest import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATHS = ("/", "/pods/default/wants", "/pods/default/runs", "/classes/gpu", "/nodes/a")
LIVE = "document.getElementById('live').textContent === 'live'"
FOCUSED = "document.activeElement.textContent"


def of_this_server(page: Page, url: str) -> bool:
    """Whether the page asked nobody else for anything."""
    return bool(page.asked_for()) and all(asked.startswith(f"{url}/") for asked in page.asked_for())


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_page_complains_or_asks_anybody_else(chromium: Browser, url: str, scheme: str) -> None:
    async with chromium.page(scheme=scheme) as page:
        for path in PATHS:
            await page.open(url + path)
            await page.until(LIVE)

        assert page.complaints() == []
        assert of_this_server(page, url)
        assert await page.value("document.cookie") == ""


async def test_the_matrix_of_a_pod_that_waits(chromium: Browser, url: str) -> None:
    async with chromium.page() as page:
        await page.open(f"{url}/pods/default/wants")

        cells = await page.value(
            "[...document.querySelectorAll('#nodes tr')].map(row => [...row.children].map(c => c.innerText))"
        )
        assert cells == [
            ["Nodes", "Verdict", "Asked", "Scheduler", "Claim gpu-0"],
            ["a", "✕ not viable", "yes", "✓ fits", "✕ 0 of 1 device free, 1 wanted"],
            ["b", "✕ not viable", "yes", "✓ fits", "✕ has no devices"],
        ]
        assert "node a is free when pod default/runs ends" in await page.text("#help")


async def test_a_page_follows_the_cluster_without_being_loaded_again(
    chromium: Browser, url: str, world: World
) -> None:
    async with chromium.page() as page:
        await page.open(f"{url}/pods/default/wants")
        await page.until(LIVE)
        await page.value("(window.sameAsBefore = true, document.querySelector('.brand').focus())")

        await world.publish("b", ["gpu-0"])
        await page.until("document.querySelector('#headline').innerText.includes('bound to b')")

        assert await page.value("window.sameAsBefore") is True
        assert await page.value("performance.getEntriesByType('navigation').length") == 1
        assert await page.value("document.activeElement.className") == "brand"
        assert await page.value("document.querySelector('#help')") is None
        assert "bound the pod to node b" in await page.text("#timeline")
        assert page.complaints() == []


async def test_what_has_the_focus_keeps_it_when_its_section_changes(
    chromium: Browser, url: str, world: World
) -> None:
    async with chromium.page() as page:
        await page.open(f"{url}/")
        await page.until(LIVE)
        await page.value("document.querySelector('a[href$=\"/runs\"]').focus()")

        await world.add_pod("later", "one")
        await page.until("document.querySelector('#pods').innerText.includes('default/later')")

        assert await page.value(FOCUSED) == "default/runs"


async def test_a_page_says_when_it_is_not_live(chromium: Browser, url: str) -> None:
    async with chromium.page() as page:
        await page.open(f"{url}/")
        await page.until(LIVE)

        await page.call(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )
        await page.value("dispatchEvent(new PageTransitionEvent('pageshow'))")

        await page.until("document.getElementById('live').textContent.startsWith('not live')")


async def test_all_of_it_can_be_reached_by_keyboard(chromium: Browser, url: str) -> None:
    async with chromium.page() as page:
        await page.open(f"{url}/pods/default/wants")

        await page.press("Tab", 9)
        assert await page.value(FOCUSED) == "Skip to the content"
        assert await page.value("document.activeElement.getBoundingClientRect().left >= 0")
        await page.press("Enter", 13)
        await page.until("document.activeElement.id === 'content'")

        reached = []
        for _ in range(40):
            await page.press("Tab", 9)
            if await page.value("document.activeElement === document.body"):
                break
            assert await page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            reached.append(await page.value("document.activeElement.getAttribute('href')"))
        links = await page.value("[...document.querySelectorAll('main a')].map(a => a.getAttribute('href'))")
        assert [link for link in reached if link] == links
        assert len(links) > 5


async def test_a_link_leads_on_and_back(chromium: Browser, url: str) -> None:
    async with chromium.page() as page:
        await page.open(f"{url}/")
        await page.value("document.querySelector('a[href$=\"/wants\"]').focus()")
        await page.press("Enter", 13)
        await page.until("document.title === 'Pod default/wants - Parley'")
        await page.value("history.back()")
        await page.until(f"document.title === 'Pods and classes - Parley' && {LIVE}")


async def test_without_scripts_the_page_is_the_same_and_loads_itself_again(chromium: Browser, url: str) -> None:
    async with chromium.page(scripts=False) as page:
        await page.open(f"{url}/pods/default/wants")

        assert "default/wants has been waiting for" in await page.text("#headline")
        assert await page.value("document.querySelector('meta[http-equiv=refresh]').content") == "10"
        assert "reloads every 10 s" in await page.text("header")
        assert not [asked for asked in page.asked_for() if "format=stream" in asked]
        assert of_this_server(page, url)


async def test_the_form_works_without_scripts(chromium: Browser, url: str) -> None:
    async with chromium.page(scripts=False) as page:
        await page.open(f"{url}/")
        await page.value("(document.querySelector('#choose-state').value = 'bound', 0)")
        await page.value("document.querySelector('button').focus()")
        await page.press("Enter", 13)

        await page.until("location.search.includes('state=bound')")
        await page.until("document.readyState === 'complete'")
        assert "default/runs" in await page.text("#pods")
        assert "default/wants" not in await page.text("#pods")


CONTRASTS = """
(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (e) => { for (; e; e = e.parentElement) {
    const c = parts(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } };
  const seen = [...document.querySelectorAll('main *, header *')].filter(e =>
    [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.getClientRects().length);
  return seen.map(e => {
    const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 80)];
  }).filter(([ratio]) => ratio < 4.5);
})()
"""
"""Texts with less contrast to what is behind them than WCAG asks for (1.4.3, AA)."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_is_legible(chromium: Browser, url: str, scheme: str) -> None:
    async with chromium.page(scheme=scheme) as page:
        for path in PATHS:
            await page.open(url + path)
            assert await page.value(CONTRASTS) == []
        dark = await page.value("matchMedia('(prefers-color-scheme: dark)').matches")
        back = await page.value("getComputedStyle(document.body).backgroundColor")

    assert dark is (scheme == "dark")
    assert (back == "rgb(22, 24, 26)") is dark


@pytest.mark.parametrize("path", PATHS)
async def test_on_a_narrow_screen_only_tables_scroll(chromium: Browser, url: str, path: str) -> None:
    async with chromium.page(size=(360, 700)) as page:
        await page.open(url + path)

        assert await page.value("document.scrollingElement.scrollWidth") <= 360
