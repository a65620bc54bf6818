"""What `kubectl get` prints of objects of our kinds, by the columns of their CRDs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from parley.api.crd import KINDS, definition
from parley.api.resources import Resource
from parley.explain.times import seconds_since

_PADDING = 3
"""Blanks between two columns."""


def kubectl_table(resource: Resource[Any], bodies: Iterable[Mapping[str, Any]], now: datetime) -> str:
    """Of `kubectl get`, in the order given, without the columns of `-o wide`."""
    (kind,) = (kind for kind in KINDS if kind.resource == resource)
    columns = definition(kind)["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column for column in columns if not column.get("priority")]
    rows = [["NAME", *(column["name"].upper() for column in shown)]]
    for body in bodies:
        rows.append([body["metadata"]["name"], *(_cell(body, column, now) for column in shown)])
    return "".join(f"{line}\n" for line in _aligned(rows))


def _cell(body: Mapping[str, Any], column: Mapping[str, Any], now: datetime) -> str:
    """The value at a path of names alone; empty if there is none."""
    value: Any = body
    for name in column["jsonPath"].removeprefix(".").split("."):
        assert re.fullmatch("[a-zA-Z]+", name), f"{column['jsonPath']} is not a path of names alone"
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is None:
        return ""
    return _age(timedelta(seconds=seconds_since(value, now) or 0)) if column["type"] == "date" else str(value)


def _age(passed: timedelta) -> str:
    """As `HumanDuration` of k8s.io/apimachinery, up to three hours."""
    seconds = int(passed.total_seconds())
    if seconds < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    assert minutes < 180, "longer times are written in other ways"
    return f"{minutes}m{rest}s" if minutes < 10 and rest else f"{minutes}m"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[number]) for row in rows) + _PADDING for number in range(len(rows[0]))]
    for row in rows:
        yield "".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
