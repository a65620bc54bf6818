"""The first page: pods with claims, waiting ones first, and the classes' capacity."""

from collections import Counter
from collections.abc import Sequence

from parley.explain.overview import ClassRow
from parley.web.details import STATES, PodRow
from parley.web.links import Links
from parley.web.markup import Element, Node, h
from parley.web.views.parts import link, paged, pager, section, short, since, state, table

PODS = 100
"""So many are on a page."""

_MESSAGE = 80


def home(pods: Sequence[PodRow], classes: Sequence[ClassRow], now: str, links: Links) -> list[Node]:
    """The sections of the first page."""
    query = links.here.query
    chosen = [pod for pod in pods if _chosen(pod, query.get("namespace", ""), query.get("state", ""))]
    page, pages = paged(len(chosen), links.here.page, PODS)
    rows = [_pod(pod, now, links) for pod in chosen[(page - 1) * PODS : page * PODS]]
    headings = ("Pod", "State", "Waiting for", "Age", "Node", "Classes", "Ahead in line", "Message")
    return [
        h("h1", "Pods and classes"),
        section(
            "pods",
            f"Pods with claims ({len(chosen)})",
            _filter(pods, links),
            table(headings, rows, "Pods with claims") if rows else h("p", "There are none."),
            pager(links, page, pages, "pods"),
        ),
        section("classes", "Classes", _classes(classes, links)),
    ]


def _chosen(pod: PodRow, namespace: str, wanted: str) -> bool:
    return namespace in ("", pod.namespace) and wanted in ("", pod.state)


def _pod(pod: PodRow, now: str, links: Links) -> list[Node]:
    classes = [[", " if number else "", link(name, links.class_(name))] for number, name in enumerate(pod.classes)]
    return [
        link(f"{pod.namespace}/{pod.name}", links.pod(pod.namespace, pod.name)),
        state(pod.state),
        pod.code or "-",
        since(pod.since, now),
        link(pod.node, links.node(pod.node)) if pod.node else "-",
        classes or "-",
        str(pod.ahead) if pod.state == "waits" or pod.message else "-",
        short(pod.message, _MESSAGE) or "-",
    ]


def _filter(pods: Sequence[PodRow], links: Links) -> Element:
    """The form that filters pods; it works without scripts."""
    namespaces = sorted({pod.namespace for pod in pods})
    states = Counter(pod.state for pod in pods)
    named = [(name, f"{name} ({states[name]})") for name in STATES]
    return h(
        "form",
        h("label", "Namespace ", _choice("namespace", [(name, name) for name in namespaces], links)),
        " ",
        h("label", "State ", _choice("state", named, links)),
        " ",
        h("button", "Show", type="submit"),
        method="get",
        action=links.home,
    )


def _choice(name: str, options: Sequence[tuple[str, str]], links: Links) -> Element:
    chosen = links.here.query.get(name, "")
    return h(
        "select",
        h("option", "all", value=""),
        (h("option", text, value=value, selected=value == chosen) for value, text in options),
        name=name,
        id=f"choose-{name}",
    )


def _classes(classes: Sequence[ClassRow], links: Links) -> Element:
    if not classes:
        return h("p", "There are no classes.")
    headings = ("Class", "Driver", "Suitable nodes", "What", "Total", "Free", "Claims", "Waiting")
    return table(headings, [[link(row.name, links.class_(row.name)), *figures(row)] for row in classes], "Classes")


def figures(row: ClassRow) -> list[Node]:
    """A class's figures, without its name."""
    free = _number(row.free) + (f" (+{row.partly_free} partly)" if row.partly_free else "")
    waiting = state("waits", f"{row.waiting} waiting") if row.waiting else "0"
    return [row.driver, _number(row.nodes), row.what or "-", _number(row.total), free, str(row.claims), waiting]


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
