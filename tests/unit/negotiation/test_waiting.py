"""Lines of waiting pods: a change wakes one pod per line, and nobody is forgotten."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.negotiation.waiting import MAX_LINES_ASKED, MOST_COMPARED, Place, WaitingLines

GPU = ("driver", "gpu")
NODES = ("nodes",)


def test_a_change_wakes_the_first_of_each_line_that_waits_for_it() -> None:
    lines: WaitingLines[str] = WaitingLines()
    for pod, line, topic in [("p1", "small", GPU), ("p2", "small", GPU), ("p3", "large", GPU), ("p4", "x", NODES)]:
        lines.wait(pod, line, [topic])
    assert lines.wake(GPU) == ["p1", "p3"]
    assert lines.wake(NODES) == ["p4"]
    assert lines.wake(("driver", "other")) == []


def test_when_the_first_is_served_the_next_is_woken() -> None:
    lines: WaitingLines[str] = WaitingLines()
    for pod in ("p1", "p2", "p3"):
        lines.wait(pod, "small", [GPU])
    assert lines.leave("p2") is None
    assert lines.leave("p1") == "p3"
    assert lines.leave("p3") is None
    assert len(lines) == 0
    assert lines.wake(GPU) == []


def test_a_pod_that_was_woken_in_vain_keeps_its_place() -> None:
    lines: WaitingLines[str] = WaitingLines()
    lines.wait("p1", "small", [GPU])
    lines.wait("p2", "small", [GPU])
    assert lines.wait("p1", "small", [GPU]) is None
    assert lines.wake(GPU) == ["p1"]


def test_a_pod_that_changes_its_line_makes_room_in_the_old_one() -> None:
    lines: WaitingLines[str] = WaitingLines()
    lines.wait("p1", "small", [GPU])
    lines.wait("p2", "small", [GPU])
    assert lines.wait("p1", "large", [GPU]) == "p2"


def test_who_came_first_is_first_in_every_line_that_it_joins() -> None:
    lines: WaitingLines[str] = WaitingLines()
    lines.wait("p2", "small", [GPU], place=Place(0, 2))
    lines.wait("p3", "small", [GPU], place=Place(0, 3))
    lines.wait("p1", "large", [GPU], place=Place(0, 1))
    assert lines.wait("p1", "small", [GPU], place=Place(0, 1)) is None
    assert lines.heads(GPU) == [("small", Place(0, 1), "p1")]
    assert lines.leave("p2") is None
    assert lines.leave("p1") == "p3"


@given(st.lists(st.tuples(st.sampled_from("wl"), st.integers(0, 5), st.integers(0, 2)), max_size=40))
def test_every_line_has_a_first_that_a_change_wakes(steps: list[tuple[str, int, int]]) -> None:
    lines: WaitingLines[int] = WaitingLines()
    expected: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for action, pod, line in steps:
        if action == "w":
            if pod not in expected[line]:
                for pods in expected.values():
                    if pod in pods:
                        pods.remove(pod)
                expected[line].append(pod)
            lines.wait(pod, line, [GPU])
        else:
            for pods in expected.values():
                if pod in pods:
                    pods.remove(pod)
            lines.leave(pod)
        assert sorted(lines.wake(GPU)) == sorted(pods[0] for pods in expected.values() if pods)
        assert len(lines) == sum(map(len, expected.values()))


def test_a_topic_may_be_named_twice() -> None:
    lines: WaitingLines[str] = WaitingLines()
    lines.wait("a", "line", [GPU, GPU])

    assert lines.leave("a") is None
    assert lines.wake(GPU) == []


def test_a_change_on_a_node_wakes_the_lines_that_it_may_help() -> None:
    lines: WaitingLines[str] = WaitingLines()
    lines.wait("anywhere", "one", [NODES])
    lines.wait("for-a", "two", [NODES], helps=lambda nodes: "a" in (nodes or ()))
    lines.wait("behind", "two", [NODES], helps=lambda nodes: "a" in (nodes or ()))
    lines.wait("for-b", "three", [NODES], helps=lambda nodes: "b" in (nodes or ()))
    assert lines.split_by_help(NODES, ["a"]) == (["anywhere", "for-a"], ["for-b"], [])
    assert lines.split_by_help(NODES, ["a", "b"]) == (["anywhere", "for-a", "for-b"], [], [])
    assert lines.split_by_help(NODES, None) == (["anywhere", "for-a", "for-b"], [], [])
    assert lines.split_by_help(("other",), ["a"]) == ([], [], [])


def test_a_driver_s_change_wakes_the_lines_that_it_may_help() -> None:
    lines: WaitingLines[str] = WaitingLines()
    topics = [GPU, ("class", "gpu")]
    lines.wait("unknown", "one", topics)
    lines.wait("has-room", "two", topics, helps=lambda nodes: nodes is None)
    lines.wait("has-none", "three", topics, helps=lambda _: False)
    assert lines.split_by_help(GPU, None) == (["unknown", "has-room"], ["has-none"], [])
    assert lines.split_by_help(("class", "gpu"), None) == (["unknown", "has-room", "has-none"], [], [])


def test_what_a_line_hears_of_is_found_whatever_else_it_hears_of() -> None:
    """Each pod that is served asks this about all that were woken, and these may wait for hundreds of topics."""
    compared: list[str] = []

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            compared.append(self)
            return str.__hash__(self)

    lines: WaitingLines[str] = WaitingLines()
    lines.wait("a", "line", [GPU, *(("claim", Name(f"c{number}")) for number in range(100))])
    compared.clear()
    assert lines.is_woken_by("a", [GPU])
    assert not lines.is_woken_by("a", [GPU, NODES])
    assert not lines.is_woken_by("b", [GPU])
    assert not compared


def test_of_one_flow_so_many_lines_are_asked_and_those_of_others_all_the_same() -> None:
    asked: list[str] = []

    def helps(of: str) -> Callable[[object], bool]:
        return lambda _: asked.append(of) or of == "tenant/last"  # type: ignore[func-returns-value]

    lines: WaitingLines[str] = WaitingLines(flow=lambda pod: pod.partition("/")[0])
    names = [f"tenant/{number}" for number in range(MAX_LINES_ASKED)]
    for name in (*names, "tenant/last", "other/a"):
        lines.wait(name, name, [NODES], helps=helps(name))
    lines.wait("tenant/anything", "anything", [NODES])
    assert lines.split_by_help(NODES, ["a"]) == (["tenant/anything"], [*names, "other/a"], ["tenant/last"])
    assert asked == [*names, "other/a"]
    lines.leave(names[0])
    assert lines.split_by_help(NODES, ["a"])[0] == ["tenant/last", "tenant/anything"]


@pytest.mark.parametrize(
    ("compared", "most"), [(1, MAX_LINES_ASKED), (100, MOST_COMPARED // 100), (MOST_COMPARED + 1, 1)], ids=str
)
def test_fewer_lines_are_asked_where_each_has_much_to_compare(compared: int, most: int) -> None:
    asked: list[str] = []

    def helps(of: str) -> Callable[[object], bool]:
        return lambda _: bool(asked.append(of))  # type: ignore[func-returns-value]

    lines: WaitingLines[str] = WaitingLines()
    names = [f"tenant/{number}" for number in range(MAX_LINES_ASKED + 1)]
    for name in names:
        lines.wait(name, name, [NODES], helps=helps(name))
    assert lines.split_by_help(NODES, ["a"], compared=compared) == ([], names[:most], names[most:])
    assert asked == names[:most]


def test_what_helps_a_line_is_as_its_pods_said_last() -> None:
    lines: WaitingLines[str] = WaitingLines()
    lines.wait("p", "one", [NODES], helps=lambda _: False)
    lines.wait("p", "one", [NODES], helps=lambda _: True)
    assert lines.split_by_help(NODES, ["a"]) == (["p"], [], [])
    lines.leave("p")
    lines.wait("p", "one", [NODES])
    assert lines.split_by_help(NODES, ["a"]) == (["p"], [], [])


def test_a_higher_priority_stands_ahead_of_those_that_came_before() -> None:
    lines: WaitingLines[str] = WaitingLines()
    lines.wait("early", "small", [GPU], place=Place(0, 1))
    lines.wait("high", "small", [GPU], place=Place(-10, 2))
    lines.wait("low", "small", [GPU], place=Place(5, 3))
    lines.wait("higher", "large", [GPU], place=Place(-20, 4))
    assert list(lines.members("small")) == ["high", "early", "low"]
    assert lines.wake(GPU) == ["higher", "high"]
    assert lines.leave("high") == "early"


def test_one_that_parts_from_its_line_hears_of_the_same_and_the_next_one_is_first() -> None:
    lines: WaitingLines[str] = WaitingLines()
    for pod in ("first", "second"):
        lines.wait(pod, "line", [GPU])
    assert lines.move("first", "alone") == "second"
    assert lines.wake(GPU) == ["first", "second"]
    assert lines.move("first", "alone") is None
    assert lines.move("nobody", "alone") is None
    assert lines.leave("first") is None
    assert lines.wake(GPU) == ["second"]


def test_those_of_smaller_ranks_only_hear_of_what_has_to_have_them() -> None:
    lines: WaitingLines[str] = WaitingLines()
    for rank in range(3):
        lines.wait(f"rank-{rank}", rank, [GPU], Place(rank, 0))
    assert lines.split_by_help(GPU, ["a"], above=1) == (["rank-0"], [], [])
