"""Turns: what was measured one after the other on one machine, and how one way compares with another. Pure."""

from collections.abc import Callable, Sequence
from statistics import median

import msgspec


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way of placing the pods, measured once."""

    way: str
    """The workload's name, or the peer's."""
    turn: int
    pods: int
    nodes: int
    pods_per_second: float
    """From the first creation to the last binding."""
    cpu_ms_per_pod: float
    """Of control plane, load and, for ours, Parley, together."""
    others: float
    """The share of the machine's CPU time that other processes took meanwhile."""
    own_pods_per_second: float | None = None
    """What the peer itself reports: the mean of one-second samples after the first."""


def _rate(turn: Turn) -> float:
    return turn.pods_per_second


def _cost(turn: Turn) -> float:
    return turn.cpu_ms_per_pod


_COMPARED: Sequence[tuple[str, Callable[[Turn], float]]] = (("pods/s", _rate), ("CPU/pod", _cost))


def table(turns: Sequence[Turn], peers: Sequence[str]) -> str:
    """One line for each way, in Markdown: medians over its turns, and the ratio ours/theirs to each of the peers.

    A ratio is the median of the ratios of turns with the same number, as what ran one after the other had most
    alike. Where there are several, the smallest and the largest stand beside the median.
    """
    ways = list(dict.fromkeys(turn.way for turn in turns))
    measured = [peer for peer in peers if peer in ways]
    heads = ["way", "turns", "pods/s", "CPU/pod", "CPU of others"]
    heads += [f"{name}, ours/{peer}" for peer in measured for name, _ in _COMPARED]
    lines = [heads, ["---"] * len(heads)]
    for way in ways:
        own = [turn for turn in turns if turn.way == way]
        line = [way, str(len(own)), f"{median(map(_rate, own)):.1f}", f"{median(map(_cost, own)):.1f} ms"]
        line.append(_spread([100 * turn.others for turn in own], "{:.0f}") + " %")
        theirs = ([turn for turn in turns if turn.way == peer] for peer in measured if way not in measured)
        line += [_spread(_ratios(own, other, value), "{:.2f}") for other in theirs for _, value in _COMPARED]
        lines.append(line + [""] * (len(heads) - len(line)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ratios(ours: Sequence[Turn], theirs: Sequence[Turn], value: Callable[[Turn], float]) -> list[float]:
    by_number = {turn.turn: value(turn) for turn in theirs}
    return [value(turn) / by_number[turn.turn] for turn in ours if turn.turn in by_number]


def _spread(values: Sequence[float], form: str) -> str:
    middle, least, most = (form.format(of(values)) for of in (median, min, max))
    return middle if least == most else f"{middle} ({least} to {most})"
