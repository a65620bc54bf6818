"""How an explanation is printed: on terminals of any width, without one, and as data with documented fields."""

import re
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path

import orjson
import pytest
from tests.unit.explain.conftest import text_of

from parley.explain.model import Cell, ClaimDetails, Explanation, NodeRow, PodFinding, Remedy, wire
from parley.explain.text import console, show

PAGE = (Path(__file__).parents[3] / "docs" / "explain.md").read_text()


def explanation(nodes: int, alike: bool = False) -> Explanation:
    def row(number: int) -> NodeRow:
        why = "full" if alike else f"{number} of 9 free"
        return NodeRow(f"node-{number}", "notViable", "", True, (Cell("gpu", False, why),))

    return Explanation(
        namespace="team",
        name="wants",
        state="waits",
        phase="Pending",
        node="",
        since="2026-01-01T00:00:00Z",
        code="NothingViable",
        message="no node is available",
        round=3,
        candidates=nodes,
        viable=0,
        recorded=True,
        claims=(ClaimDetails("gpu", "template one", "wants-gpu", "gpu", "device.parley.dev", "pending"),),
        nodes=tuple(row(number) for number in range(nodes)),
        findings=(PodFinding("scheduler", "Unschedulable", "[no] node", "2026-01-01T00:01:00Z"),),
        remedies=(Remedy("noNode", "nothing"),),
        ahead=(),
        unread=("nodes is forbidden",),
        now="2026-01-01T00:03:00Z",
    )


def test_without_a_terminal_lines_are_whole_and_plain() -> None:
    text = text_of(explanation(2))

    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert " - scheduler, 2 min ago: Unschedulable: [no] node" in text.splitlines()


@pytest.mark.parametrize("width", [40, 79, 80, 120])
def test_on_a_terminal_lines_fit(width: int) -> None:
    assert max(len(line) for line in text_of(explanation(3), width).splitlines()) <= width


def test_on_a_terminal_there_is_colour() -> None:
    written = StringIO()
    show(console(100, file=written, force_terminal=True, color_system="standard"), explanation(1))

    assert "\x1b[" in written.getvalue()


HOSTILE = "[/red]\x1bc\x1b[\x1b[31m31m\x1b]8;;http://evil.example\x1b\\:warning:\x9b2J"
SHOWN = HOSTILE.replace("\x1b", r"\x1b").replace("\x9b", r"\x9b")


@pytest.mark.parametrize("width", [40, 1000], ids=["narrow", "wide"])
def test_what_users_and_drivers_wrote_is_shown_and_changes_nothing(width: int) -> None:
    """Neither Rich's markup nor the terminal's own, on which there is colour besides."""
    told = replace(
        explanation(1),
        message=HOSTILE,
        claims=(ClaimDetails("gpu", "template one", "p-gpu", "gpu", "d.example.com", "pending", HOSTILE + "1"),),
        nodes=(NodeRow("a", "notViable", HOSTILE, True, (Cell("gpu", False, HOSTILE),)),),
        findings=(PodFinding("kubelet", "Unhealthy", HOSTILE),),
        remedies=(Remedy("advice", HOSTILE),),
        unread=(HOSTILE,),
    )
    written = StringIO()
    show(console(width, file=written, force_terminal=True, color_system="standard"), told)

    plain = re.sub(r"\x1b\[[0-9;]*m", "", written.getvalue())
    assert [line for line in plain.split("\n") if not line.isprintable()] == []
    assert width == 40 or plain.count(SHOWN) == 7


def test_nodes_of_which_the_same_is_said_are_one_line() -> None:
    assert "node-0, node-1, node-2 and 4997 more  fits       full" in text_of(explanation(5000, alike=True))


def test_of_very_many_different_nodes_the_first_are_shown() -> None:
    text = text_of(explanation(50))

    assert "and 30 more nodes (-o wide has all)" in text
    assert "node-20 " not in text


def test_data_is_json_with_every_field() -> None:
    data = orjson.loads(orjson.dumps(wire({"pods": [explanation(1)]})))

    (pod,) = data["pods"]
    assert pod["claims"][0]["className"] == "gpu"
    assert pod["nodes"][0]["claims"] == [{"claim": "gpu", "viable": False, "why": "0 of 9 free"}]
    assert len(pod) == len(fields(Explanation))


def test_every_field_is_on_the_page() -> None:
    named = set(re.findall(r"`([a-zA-Z]+)`", PAGE))
    kinds = (Explanation, ClaimDetails, NodeRow, Cell, PodFinding, Remedy)
    known = {name for kind in kinds for name in wire({f.name: 0 for f in fields(kind)})}

    assert {re.sub(r"_(.)", lambda match: match[1].upper(), name) for name in known} <= named


def test_the_outputs_on_the_page_are_real() -> None:
    golden = (Path(__file__).parent / "explanations.txt").read_text()
    shown = [block for block in re.findall(r"```\n(.*?)```", PAGE, flags=re.DOTALL) if block.startswith("Pod ")]

    assert len(shown) == 3
    assert [block for block in shown if block not in golden] == []


def test_the_table_of_kubectl_on_the_page_is_real() -> None:
    golden = (Path(__file__).parent / "explanations.txt").read_text()
    (table,) = re.findall(r"```\n\$ kubectl get podschedulings\n(.*?)```", PAGE, flags=re.DOTALL)

    assert table.startswith("NAME ")
    assert f"### kubectl get podschedulings\n{table}" in golden
