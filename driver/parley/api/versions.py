"""Parses the versions of Kubernetes and of container runtimes that servers and nodes report. Pure."""

import re
from typing import Any

Version = tuple[int, int]

COUNTS_GATED_NOMINATIONS: Version = (1, 37)
"""From this version on a kube-scheduler that starts counts gated pods for the nodes that they are nominated for
already (kubernetes/kubernetes#139057)."""

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")


def parsed(text: str) -> Version | None:
    """Major and minor of "v1.37.0-rc.1" or "2.1.4"; None if it is no version."""
    found = _NUMBERS.match(text)
    return (int(found[1]), int(found[2])) if found else None


def of_server(answer: dict[str, Any]) -> Version | None:
    """The version of an API server, from its answer at `/version`; None if that has none."""
    return parsed(str(answer.get("gitVersion", "")))


def written(version: Version) -> str:
    """The version as text: "1.37"."""
    return f"{version[0]}.{version[1]}"
