"""`parley get`: what each class has, who uses what, who waits in line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from parley.cli.asking import (
    AllNamespaces,
    Context,
    Format,
    Kubeconfig,
    Namespace,
    Output,
    answered,
    namespace_of,
    printed,
)
from parley.explain import overview
from parley.explain.overview import ClassRow, UseRow, WaitRow
from parley.explain.snapshot import Snapshot, read
from parley.explain.text import console, print_plain, table
from parley.explain.times import ago
from parley.kube.client import Client
from parley.kube.clock import utc

_SHOWN = 100
"""Characters of a message in a table."""


@dataclass(frozen=True)
class _View:
    """One overview: its rows, of one namespace or all, and how a row is shown at a time."""

    rows: Callable[[Snapshot, str | None], Sequence[Any]]
    headings: tuple[str, ...]
    cells: Callable[[Any, str], tuple[str, ...]]
    nothing: str
    namespaced: bool = True


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _class(row: ClassRow, _: str) -> tuple[str, ...]:
    free = _number(row.free) + (f" (+{row.partly_free} partly)" if row.partly_free else "")
    counts = (_number(row.total), free, str(row.claims), str(row.waiting))
    return (row.name, row.driver, str(row.nodes), row.what or "-", *counts)


def _use(row: UseRow, now: str) -> tuple[str, ...]:
    holds = ", ".join(row.holds) or "-"
    return (row.namespace, row.pod or "-", row.node or "-", row.claim, row.class_name, holds, ago(row.since, now))


def _wait(row: WaitRow, now: str) -> tuple[str, ...]:
    message = row.message if len(row.message) <= _SHOWN else f"{row.message[:_SHOWN]}..."
    classes, since = ",".join(row.classes) or "-", ago(row.since, now)
    return (row.namespace, row.pod, row.code, since, classes, str(row.ahead), message)


_VIEWS = {
    "classes": _View(
        lambda world, _: overview.classes(world),
        ("CLASS", "DRIVER", "NODES", "WHAT", "TOTAL", "FREE", "CLAIMS", "WAITING"),
        _class,
        "There are no classes.",
        namespaced=False,
    ),
    "uses": _View(
        overview.uses,
        ("NAMESPACE", "POD", "NODE", "CLAIM", "CLASS", "HOLDS", "FOR"),
        _use,
        "Nothing is in use",
    ),
    "waiting": _View(
        overview.line,
        ("NAMESPACE", "POD", "WAITING-FOR", "SINCE", "CLASSES", "AHEAD", "MESSAGE"),
        _wait,
        "No pod waits",
    ),
}


def get(
    what: Annotated[
        str,
        typer.Argument(metavar="classes|uses|waiting", help="What each has; who uses what; who waits in line."),
    ],
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    output: Format = Output.TEXT,
) -> None:
    """List what kubectl has no columns for: what classes have, who uses what, who waits in line."""
    view = _VIEWS.get(what)
    if view is None:
        raise typer.BadParameter(f"{what!r} is not one of {', '.join(_VIEWS)}")
    place = namespace or namespace_of(kubeconfig, context)

    async def ask(client: Client) -> Snapshot:
        return await read(client, utc(), place)

    world = answered(kubeconfig, context, ask)
    rows = view.rows(world, None if all_namespaces else place)
    if output is Output.TEXT:
        where = "." if not view.namespaced else " anywhere." if all_namespaces else f" in namespace {place}."
        _show(view, rows, overview.now(world), view.nothing.removesuffix(".") + where)
        for unread in world.unread:
            typer.echo(f"not read: {unread}", err=True)
    else:
        printed({what: rows, "unread": world.unread, "now": overview.now(world)}, output)


def _show(view: _View, rows: Sequence[Any], now: str, nothing: str) -> None:
    out = console()
    if not rows:
        out.print(nothing)
        return
    shown = [[Text(cell) for cell in view.cells(row, now)] for row in rows]
    print_plain(out, table(view.headings, shown))
