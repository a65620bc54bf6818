"""The pages of a class and of a node: capacity, the users of claims, and waiting pods."""

from collections.abc import Sequence

from parley.explain.overview import UseRow, WaitRow
from parley.web.details import ClassDetails, DeviceRow, NodeDetails
from parley.web.links import Links
from parley.web.markup import Element, Node, h
from parley.web.views.home import figures
from parley.web.views.parts import few, link, mark, paged, pager, section, short, since, state, table

ROWS = 100
"""So many are on a page."""


def class_(details: ClassDetails, now: str, links: Links) -> list[Node]:
    """The sections of a class's page."""
    return [
        h("h1", f"Class {details.row.name}"),
        section("figures", "What it has", _figures(details)),
        section("waiting", f"Waiting ({len(details.waiting)})", _waiting(details.waiting, now, links)),
        section("uses", f"In use ({len(details.uses)})", _uses(details.uses, now, links)),
    ]


def _figures(details: ClassDetails) -> Node:
    headings = ("Class", "Driver", "Suitable nodes", "What", "Total", "Free", "Claims", "Waiting")
    shared = "Several pods may share a claim." if details.shareable else "One pod uses a claim at a time."
    limits = [h("p", "Limit of ", limit) for limit in details.limits]
    return [table(headings, [[details.row.name, *figures(details.row)]], "What it has"), h("p", shared), limits]


def _waiting(rows: Sequence[WaitRow], now: str, links: Links) -> Node:
    if not rows:
        return h("p", "No pod is waiting.")
    shown: list[list[Node]] = [
        [
            link(f"{row.namespace}/{row.pod}", links.pod(row.namespace, row.pod)),
            row.code or "-",
            since(row.since, now),
            str(row.ahead),
            short(row.message) or "-",
        ]
        for row in rows[:ROWS]
    ]
    left = h("p", f"and {len(rows) - ROWS} more") if len(rows) > ROWS else None
    return [table(("Pod", "Waiting for", "Age", "Ahead in line", "Message"), shown, "Waiting"), left]


def _uses(rows: Sequence[UseRow], now: str, links: Links) -> Node:
    if not rows:
        return h("p", "Nothing is in use.")
    page, pages = paged(len(rows), links.here.page, ROWS)
    shown = [_use(row, now, links) for row in rows[(page - 1) * ROWS : page * ROWS]]
    headings = ("Pod", "Node", "Claim", "Class", "Holds", "For")
    return [table(headings, shown, "In use"), pager(links, page, pages, "uses")]


def _use(row: UseRow, now: str, links: Links) -> list[Node]:
    title = f"{row.namespace}/{row.pod}"
    kept = f", kept until {row.kept_until}" if row.kept_until else ""
    return [
        link(title, links.pod(row.namespace, row.pod))
        if row.pod
        else f"nobody (claim {row.namespace}/{row.claim}{kept})",
        link(row.node, links.node(row.node)) if row.node else "-",
        row.claim,
        link(row.class_name, links.class_(row.class_name)) if row.class_name else "-",
        short(", ".join(row.holds)) or "-",
        since(row.since, now),
    ]


def node(details: NodeDetails, now: str, links: Links) -> list[Node]:
    """The sections of a node's page."""
    cordoned = h("p", mark("doesNotFit", "cordoned: no new pods")) if details.unschedulable else None
    taints = h("p", "Taints: ", ", ".join(details.taints)) if details.taints else None
    devices = _devices(details.devices, links) if details.devices else h("p", "No driver has published any here.")
    return [
        h("h1", f"Node {details.name}"),
        h("section", cordoned, taints, id="state") if cordoned or taints else None,
        section("uses", f"In use ({len(details.uses)})", _uses(details.uses, now, links)),
        section("devices", f"Devices ({len(details.devices)})", devices),
    ]


def _devices(rows: Sequence[DeviceRow], links: Links) -> Element:
    headings = ("Device", "Driver", "State", "Pods", "Claims")
    return table(headings, [_device(row, links) for row in rows], "Devices")


def _device(row: DeviceRow, links: Links) -> list[Node]:
    pods = [title for title in row.holders if title]
    return [
        f"{row.pool}/{row.device}",
        row.driver,
        state("bound", "held") if row.claims else state("viable", "free"),
        few(pods, links.titled) or "-",
        few(row.claims) or "-",
    ]
