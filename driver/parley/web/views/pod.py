"""A pod's page: why it waits or where it is, its claims by nodes, what would help, and its timeline."""

from collections.abc import Sequence

from parley.api.wording import counted
from parley.explain.model import ClaimDetails, Explanation, PodFinding, Remedy
from parley.explain.text import claim_state, headline
from parley.web.links import Links
from parley.web.markup import Element, Node, h
from parley.web.timeline import TimelineEntry
from parley.web.views.matrix import matrix
from parley.web.views.parts import few, link, mark, section, short, since, table

MOMENTS = 200
"""So many are on the page, the latest."""


def pod(explanation: Explanation, moments: Sequence[TimelineEntry], links: Links) -> list[Node]:
    """The sections."""
    return [
        _summary(explanation, links),
        section("claims", "Claims", _claims(explanation, links)),
        matrix(explanation, links),
        _help(explanation, links),
        section("reports", "Reports", _reports(explanation.findings, explanation.now))
        if explanation.findings
        else None,
        section("timeline", "Timeline", _timeline(moments, explanation.now)),
    ]


def _summary(explanation: Explanation, links: Links) -> Element:
    place = h("p", "On node ", link(explanation.node, links.node(explanation.node))) if explanation.node else None
    return h(
        "section",
        h("h1", f"Pod {explanation.title}"),
        h("p", h("strong", mark(explanation.state, headline(explanation).plain)), id="headline"),
        place,
        h("p", explanation.message, class_="message") if explanation.message else None,
        id="summary",
    )


def _claims(explanation: Explanation, links: Links) -> Element:
    return table(
        ("Claim", "From", "Class", "Driver", "State"),
        [_claim(c, explanation, links) for c in explanation.claims],
        "Claims",
    )


def _claim(claim: ClaimDetails, explanation: Explanation, links: Links) -> list[Node]:
    state = {"allocated": "bound", "pending": "waits", "offered": "waits", "released": "ended"}.get(
        claim.state, "notViable"
    )
    return [
        claim.entry,
        claim.source,
        link(claim.class_name, links.class_(claim.class_name)) if claim.class_name else "-",
        claim.driver or "-",
        mark(state, short(claim_state(claim, explanation))),
    ]


def _help(explanation: Explanation, links: Links) -> Element | None:
    if not explanation.remedies and not explanation.ahead:
        return None
    ahead = None
    if explanation.ahead:
        names = few(explanation.ahead, links.titled)
        ahead = h("p", "Waiting longer for the same classes: ", names)
    return section(
        "help", "What would help", h("ul", (_remedy(one, links) for one in explanation.remedies)), ahead
    )


def _remedy(remedy: Remedy, links: Links) -> Element:
    pods = few(remedy.pods, links.titled)
    nodes = few(remedy.nodes, links.node)
    return h(
        "li",
        remedy.text,
        h("span", " Pods: ", pods, class_="more") if remedy.pods else None,
        h("span", " Nodes: ", nodes, class_="more") if remedy.nodes else None,
    )


def _reports(findings: Sequence[PodFinding], now: str) -> Element:
    rows: list[list[Node]] = [[one.by, since(one.at, now), one.code or "-", one.text] for one in findings]
    return table(("By", "Since", "Code", "Message"), rows, "Reports")


def _timeline(moments: Sequence[TimelineEntry], now: str) -> Node:
    left = len(moments) - MOMENTS
    rows: list[list[Node]] = [
        [since(one.at, now), one.by, one.code or "-", one.text] for one in moments[-MOMENTS:]
    ]
    earlier = h("p", f"{counted(left, 'earlier entry', 'earlier entries')} not shown.") if left > 0 else None
    return [earlier, table(("Ago", "By", "Code", "What"), rows, "Timeline")]
