"""The parts that all pages share: the frame around them, tables, times, and marks of states.

No state is shown by its colour alone: each has a label, and a sign in front of it.
"""

from collections.abc import Callable, Sequence

from parley.explain.times import ago
from parley.web.links import Links
from parley.web.markup import Element, Node, h, html

RELOADS = 10
"""Seconds after which a page without scripts loads itself again."""

_LONGEST = 300
_SIGNS = {
    "selected": "●",
    "viable": "✓",
    "unknown": "?",
    "notViable": "✕",
    "doesNotFit": "–",
    "waits": "…",
    "gated": "‖",
    "deleting": "✕",
    "bound": "✓",
    "ended": "■",
}


def document(title: str, main: str, links: Links, version: str) -> str:
    """The whole page around the HTML of what is in <main>. `version` is hexadecimal: it changes with the
    content."""
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", title),
        h("link", rel="icon", type="image/svg+xml", href=links.static("icon.svg")),
        h("link", rel="stylesheet", href=links.static("style.css")),
        h("script", src=links.static("live.js"), defer=True),
        h("noscript", h("meta", http_equiv="refresh", content=str(RELOADS))),
    )
    top = (
        h("a", "Skip to the content", class_="skip", href="#content"),
        h(
            "header",
            h("nav", h("a", "Parley", href=links.home, class_="brand"), aria_label="Pages"),
            h("p", h("noscript", f"reloads every {RELOADS} s"), id="live", role="status"),
        ),
    )
    begin = f'<!doctype html>\n<html lang="en">{html(head)}<body>{html(top)}'
    return f'{begin}<main id="content" tabindex="-1" data-version="{version}">{main}</main></body></html>\n'


def section(name: str, title: Node, *content: Node) -> Element:
    """A part of a page, with a heading; `name` is its id."""
    return h("section", h("h2", title, id=f"{name}-title"), content, id=name, aria_labelledby=f"{name}-title")


def table(headings: Sequence[str], rows: Sequence[Sequence[Node]], caption: str) -> Element:
    """A table whose rows begin with their headings. It scrolls by itself if it is wider than the page."""
    head = h("thead", h("tr", (h("th", heading, scope="col") for heading in headings)))
    body = h("tbody", (_row(row) for row in rows))
    inner = h("table", h("caption", caption, class_="hidden"), head, body)
    return h("div", inner, class_="scrolls", role="region", aria_label=caption, tabindex="0")


def _row(cells: Sequence[Node]) -> Element:
    first, *others = cells
    return h("tr", h("th", first, scope="row"), (h("td", cell) for cell in others))


def link(text: str, href: str) -> Element:
    """A link."""
    return h("a", text, href=href)


def mark(state: str, text: str = "") -> Element:
    """A state: its sign, and its name or another label."""
    return h(
        "span", h("span", _SIGNS.get(state, ""), aria_hidden="true"), f" {text or state}", class_=f"mark {state}"
    )


def state(of: str, text: str = "") -> Element:
    """A state with a short label that stays in one line."""
    return h("span", mark(of, text), class_="state")


def since(time: str, now: str) -> Node:
    """How long ago an API timestamp was, with the time itself as the title."""
    age = ago(time, now)
    return h("time", age, datetime=time, title=time) if age else "-"


def short(text: str, most: int = _LONGEST) -> str:
    """A text, or its beginning."""
    return text if len(text) <= most else f"{text[:most]}…"


def few(items: Sequence[str], href: Callable[[str], str] | None = None, most: int = 5) -> list[Node]:
    """Names, as links if `href` is given, and how many more there are."""
    shown: list[Node] = []
    for item in items[:most]:
        shown += [", " if shown else "", link(item, href(item)) if href is not None else item]
    return [*shown, f" and {len(items) - most} more"] if len(items) > most else shown


def pager(links: Links, page: int, pages: int, what: str) -> Element | None:
    """Links to the pages before and after, if there are several."""
    if pages < 2:
        return None
    before = link("← before", links.changed(page=str(page - 1))) if page > 1 else None
    after = link("after →", links.changed(page=str(page + 1))) if page < pages else None
    return h("nav", before, f" page {page} of {pages} ", after, class_="pager", aria_label=f"Pages of {what}")


def paged(count: int, page: int, size: int) -> tuple[int, int]:
    """The page number within the existing pages, and the number of pages."""
    pages = max(1, -(-count // size))
    return min(page, pages), pages


def warnings(trouble: str, unread: Sequence[str]) -> Node:
    """Why what is shown may be old, and what could not be read."""
    if not trouble and not unread:
        return None
    old = h("p", h("strong", "May be old: "), trouble) if trouble else None
    missing = [h("p", h("strong", "Not read: "), text) for text in unread]
    return h("section", old, missing, id="warnings", class_="warning", aria_label="Warnings")


def problem(title: str, text: str, links: Links) -> list[Node]:
    """An error page."""
    back = h("p", link("All pods and classes", links.home))
    return [h("section", h("h1", title), h("p", text), back, id="problem")]
