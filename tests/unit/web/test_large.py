"""Pages about large clusters are of the size that somebody reads, whatever is said about each node."""

from collections.abc import Callable

import pytest

from parley.explain.matrix import ORDER
from parley.explain.model import Cell, ClaimDetails, Explanation, NodeRow, PodFinding, Remedy
from parley.explain.overview import ClassRow, UseRow, WaitRow
from parley.web.details import ClassDetails, PodRow
from parley.web.links import Links, address
from parley.web.markup import html
from parley.web.timeline import TimelineEntry
from parley.web.views.holders import class_
from parley.web.views.home import home
from parley.web.views.pod import pod

NODES = 5_000
NOW = "2026-01-01T01:00:00Z"
MOST = 128 * 1024
"""Bytes of a page, a tenth of them when it is sent compressed."""

CLAIMS = ("gpu", "disk", "licence", "image")


def said(words: Callable[[int], str], verdict: Callable[[int], str] = lambda _: "notViable") -> Explanation:
    rows = []
    for number in range(NODES):
        cells = tuple(Cell(claim, False, words(number)) for claim in CLAIMS)
        rows.append(NodeRow(f"node-{number:04}.rack-{number % 40}.example.com", verdict(number), "", True, cells))
    names, others = tuple(row.node for row in rows), tuple(f"team/other-{number}" for number in range(NODES))
    return Explanation(
        namespace="team",
        name="p",
        state="waits",
        phase="Pending",
        node="",
        since=NOW,
        code="NothingViable",
        message="x" * 4096,
        round=40,
        candidates=128,
        viable=0,
        recorded=True,
        claims=tuple(ClaimDetails(claim, f"template {claim}", claim, claim, "d", "pending") for claim in CLAIMS),
        nodes=tuple(rows),
        findings=tuple(PodFinding("controller", "Code", "words " * 20, NOW) for _ in range(20)),
        remedies=(Remedy("podEnds", "4995 more nodes can be freed in the same way", others, names),),
        ahead=others,
        unread=(),
        now=NOW,
    )


def shown(told: Explanation, **query: str) -> str:
    moments = [TimelineEntry(NOW, "kubelet", "Pulled", "words " * 20) for _ in range(1_000)]
    return html(pod(told, moments, Links(address("/pods/team/p", query))))


@pytest.mark.parametrize("query", [{}, {"page": "7"}, {"nodes": "each"}, {"nodes": "each", "page": "50"}])
def test_a_pod_on_5000_nodes_of_which_each_says_something_else(query: dict[str, str]) -> None:
    text = shown(said(lambda number: f"{number} of 5000 devices free, {'and so on ' * 100}"), **query)

    assert len(text.encode()) < 4 * MOST
    assert "page " in text


def test_nodes_of_which_the_same_is_said_are_one_row() -> None:
    text = shown(said(lambda number: f"{number % 3} of 8 devices free, 9 wanted"))

    assert len(text.encode()) < MOST
    rows = text.split('id="nodes"')[1].split("</section>")[0].count("<tr>") - 1
    assert rows == 3
    assert text.count("(1667 nodes)") == 2
    assert text.count("(1666 nodes)") == 1
    assert 'class="pager"' not in text


def test_every_node_is_on_one_of_the_pages_in_order() -> None:
    told = said(lambda number: "full")
    pages = [shown(told, nodes="each", page=str(number)) for number in range(1, 51)]

    for number, text in enumerate(pages):
        assert f"node-{number * 100:04}." in text
        assert f"node-{number * 100 + 99:04}." in text
        assert f"page {number + 1} of 50" in text
    assert shown(told, nodes="each", page="51") == pages[-1].replace(
        "?nodes=each&amp;page=49", "?nodes=each&amp;page=49"
    )


def test_viable_nodes_come_first() -> None:
    told = said(lambda number: "full", lambda number: ORDER[min(number // 1_000, 4)])
    text = shown(told).split('id="nodes"')[1]

    places = [text.index(f">node-{number}000.") for number in range(5)]
    assert places == sorted(places)
    assert "1000 selected" in text


def test_ten_thousand_pods() -> None:
    rows = [
        PodRow("team", f"pod-{number}", "waits", "NothingViable", "x" * 4096, "", NOW, ("gpu", "disk"), number)
        for number in range(10_000)
    ]
    classes = [ClassRow(f"class-{number}", "d", 1, "devices", 9, 9, 0, 1, 1) for number in range(50)]

    text = html(home(rows, classes, NOW, Links(address("/", {"page": "3"}))))

    assert len(text.encode()) < MOST
    assert "page 3 of 100" in text
    assert "team/pod-200<" in text
    assert "team/pod-300<" not in text


def test_a_class_that_everybody_uses_and_waits_for() -> None:
    uses = tuple(UseRow("t", f"p-{n}", "a", "c", "gpu", "d", ("a/0",), 1, NOW) for n in range(10_000))
    waiting = tuple(WaitRow("t", f"w-{n}", "NothingViable", "x" * 4096, NOW, ("gpu",), n) for n in range(10_000))
    facts = ClassDetails(ClassRow("gpu", "d", 1, "devices", 9, 0, 0, 9, 9), False, (), uses, waiting)

    text = html(class_(facts, NOW, Links(address("/classes/gpu", {"page": "100"}))))

    assert len(text.encode()) < MOST
    assert "and 9900 more" in text
    assert "p-9999" in text
