"""The views of `parley get`: the rows of each, and their columns, names and labels. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.api import resources
from parley.api.resources import Resource
from parley.explain import overview
from parley.explain.overview import ClassRow, UseRow, WaitRow
from parley.explain.snapshot import Snapshot
from parley.explain.times import ago

_SHOWN = 100
"""Characters of a message in a table."""

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Columns:
    """How a row is shown at a time; with `-o wide` there are the `wide` columns, too, before a long `last` one."""

    names: tuple[str, ...]
    wide: tuple[str, ...]
    cells: Callable[[Any, str, bool], tuple[str, ...]]
    last: tuple[str, ...] = ()

    def headings(self, *, wide: bool) -> tuple[str, ...]:
        """The headings of the table."""
        return (*self.names, *(self.wide if wide else ()), *self.last)


@dataclass(frozen=True)
class View:
    """One overview: its rows, of one namespace or all. `kind` is that of its data, `source` the resource without
    which nothing is known, `nothing` what is printed where there are no rows."""

    kind: str
    source: Resource[Any]
    rows: Callable[[Snapshot, str | None], Sequence[Any]]
    columns: Columns
    name: Callable[[Any], str]
    labels: Callable[[Snapshot, Any], Labels]
    nothing: str
    namespaced: bool = True


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _class(row: ClassRow, _: str, wide: bool) -> tuple[str, ...]:
    free = _number(row.free) + (f" (+{row.partly_free} partly)" if row.partly_free and not wide else "")
    counts = (_number(row.total), free, str(row.claims), str(row.waiting))
    more = (_number(row.partly_free),) if wide else ()
    return (row.name, row.driver, _number(row.nodes), row.what or "-", *counts, *more)


def _use(row: UseRow, now: str, wide: bool) -> tuple[str, ...]:
    holds = ", ".join(row.holds) or "-"
    more = (row.driver, str(row.units), row.kept_until) if wide else ()
    since = ago(row.since, now)
    return (row.namespace, row.pod or "-", row.node or "-", row.claim, row.class_name, holds, since, *more)


def _wait(row: WaitRow, now: str, wide: bool) -> tuple[str, ...]:
    message = row.message if wide or len(row.message) <= _SHOWN else f"{row.message[:_SHOWN]}..."
    classes, since = ",".join(row.classes) or "-", ago(row.since, now)
    more = (row.node or "-",) if wide else ()
    return (row.namespace, row.pod, row.code or "-", since, classes, str(row.ahead), *more, message)


def _class_labels(world: Snapshot, row: ClassRow) -> Labels:
    return next(one.metadata.labels for one in world.classes if one.metadata.name == row.name)


def _pod_labels(world: Snapshot, row: UseRow | WaitRow) -> Labels:
    pod = world.pods.get((row.namespace, row.pod))
    return pod.metadata.labels if pod is not None else {}


def _used_name(row: UseRow) -> str:
    return f"pod/{row.pod}" if row.pod else f"resourceclaim.parley.dev/{row.claim}"


CLASSES = View(
    kind="ClassOverview",
    source=resources.CLASSES,
    rows=lambda world, _: overview.classes(world),
    columns=Columns(
        ("CLASS", "DRIVER", "NODES", "WHAT", "TOTAL", "FREE", "CLAIMS", "WAITING"), ("PARTLY-FREE",), _class
    ),
    name=lambda row: f"resourceclass.parley.dev/{row.name}",
    labels=_class_labels,
    nothing="There are no classes",
    namespaced=False,
)
USES = View(
    kind="UseOverview",
    source=resources.BUILTIN_CLAIMS,
    rows=overview.uses,
    columns=Columns(
        ("NAMESPACE", "POD", "NODE", "CLAIM", "CLASS", "HOLDS", "FOR"), ("DRIVER", "UNITS", "KEPT-UNTIL"), _use
    ),
    name=_used_name,
    labels=_pod_labels,
    nothing="Nothing is in use",
)
WAITING = View(
    kind="WaitOverview",
    source=resources.PODS,
    rows=overview.waits,
    columns=Columns(
        ("NAMESPACE", "POD", "WAITING-FOR", "SINCE", "CLASSES", "AHEAD"), ("NODE",), _wait, last=("MESSAGE",)
    ),
    name=lambda row: f"pod/{row.pod}",
    labels=_pod_labels,
    nothing="No pod waits",
)

NAMES: Mapping[str, View] = {
    **dict.fromkeys(
        ("classes", "class", "resourceclasses", "resourceclass", "prclasses", "prclass"),
        CLASSES,
    ),
    **dict.fromkeys(("uses", "use"), USES),
    **dict.fromkeys(("waiting", "waits", "wait"), WAITING),
}
"""As what a user may name an overview: plural, singular and short."""
