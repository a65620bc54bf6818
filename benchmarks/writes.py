"""API writes by kind, as the API server counts them itself. Pure.

`apiserver_request_total` has no label for who asked: see `accounts` for that.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

METRIC = "apiserver_request_total"
_VERBS = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})
_NOT_OURS_TO_COUNT = frozenset({"leases", "subjectaccessreviews", "selfsubjectaccessreviews", "tokenreviews"})
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_SHOWN = 0.005
"""Writes per pod that are worth a line; below are leases of nobody and the like."""


@dataclass(frozen=True, slots=True, order=True)
class Write:
    """A kind of write; `code` tells whether it was refused."""

    verb: str
    group: str
    resource: str
    subresource: str
    code: str

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        refused = "" if self.code.startswith("2") else f" ({self.code})"
        return f"{self.verb} {name}{f'/{self.subresource}' if self.subresource else ''}{refused}"


Writes = Mapping[Write, int]


def parse(metrics: str) -> Counter[Write]:
    """All writes in the API server's metrics in the text format; a refused one is a write too."""
    writes: Counter[Write] = Counter()
    for line in metrics.splitlines():
        if not line.startswith(f"{METRIC}{{"):
            continue
        labels, _, value = line.rpartition(" ")
        found = dict(_LABEL.findall(labels))
        if found["verb"] in _VERBS and found["resource"] not in _NOT_OURS_TO_COUNT:
            key = Write(*(found[name] for name in ("verb", "group", "resource", "subresource", "code")))
            writes[key] += int(float(value))
    return writes


def since(before: Writes, after: Writes) -> dict[Write, int]:
    """What was written between the two."""
    return {write: count - before.get(write, 0) for write, count in after.items() if count > before.get(write, 0)}


def per_pod(writes: Writes, pods: int) -> float:
    """All of them."""
    return round(sum(writes.values()) / pods, 2)


def table(writes: Writes, pods: int) -> dict[str, float]:
    """Writes per pod by kind, the most frequent first."""
    counts: Counter[str] = Counter()
    for write, count in writes.items():
        counts[str(write)] += count  # an apply answers 201 or 200
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {kind: round(count / pods, 2) for kind, count in ordered if count / pods >= _SHOWN}
