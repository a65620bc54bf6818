"""The message about a pod that does not exist, with the pod that was probably meant. No I/O.

The names are users', of whom each may have thousands of pods: few are compared, and only their first characters.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from heapq import nsmallest
from itertools import takewhile
from operator import eq

from parley.kube.cache import Key

_MOST_COMPARED = 100
"""The most names that are compared. Each takes up to a quarter of a millisecond."""

_COMPARED = 63
"""The characters of each name that are compared: the time grows with the square of their number."""


def no_such_pod(namespace: str, name: str, pods: Iterable[Key]) -> str:
    """The message. `pods` are those of that namespace, and those of that name in others; there may be more."""
    text, here = f"pod {namespace}/{name} does not exist", set[str]()
    for place, other in pods:
        if place == namespace:
            here.add(other)
        elif other == name:
            return f"{text}: there is one of that name in namespace {place} (-n {place})"
    if alike := _alike(name, here):
        return f"{text}: did you mean {alike}?"
    return f"{text}: see `kubectl get pods -n {namespace}`, or name another namespace with -n"


def _alike(name: str, others: Iterable[str]) -> str:
    """The name that is the most similar one; "" if none is similar."""
    wanted = name[:_COMPARED]

    def difference(other: str) -> tuple[int, int]:
        begins_alike = sum(takewhile(bool, map(eq, wanted, other)))
        return abs(len(other) - len(name)), -begins_alike

    likely = {other[:_COMPARED]: other for other in nsmallest(_MOST_COMPARED, others, difference)}
    return next((likely[found] for found in get_close_matches(wanted, likely, n=1)), "")
