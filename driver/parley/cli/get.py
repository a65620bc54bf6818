"""`parley get`: what each class has, who uses what, who waits in line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from parley.api.exits import Exit
from parley.cli.asking import (
    AllNamespaces,
    As,
    AsGroup,
    Context,
    Kubeconfig,
    Labels,
    Namespace,
    Watch,
    Who,
    answered,
    namespace_of,
    selecting,
)
from parley.cli.following import follow
from parley.cli.output import AS_FAR_AS_READ, Format, NoHeaders, Output, print_names, printed, tell_unread
from parley.cli.views import NAMES, View
from parley.explain import overview
from parley.explain.model import wire
from parley.explain.snapshot import Snapshot, read
from parley.explain.text import print_rows
from parley.kube.client import Client
from parley.kube.clock import utc

_SHOWN = ("classes", "uses", "waiting")


def get(
    what: Annotated[
        str,
        typer.Argument(
            metavar="|".join(_SHOWN),
            help="What each class has, who uses what, or who waits in line. Singular and short names work, too.",
            autocompletion=lambda: list(_SHOWN),
        ),
    ],
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    selector: Labels = "",
    watch: Watch = False,
    no_headers: NoHeaders = False,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    as_user: As = "",
    as_group: AsGroup = None,
    output: Format = Output.TEXT,
) -> None:
    """List what classes have, who uses what, or who waits in line."""
    view = NAMES.get(what)
    if view is None:
        raise typer.BadParameter(f"{what!r} is not one of {', '.join(_SHOWN)}")
    who = Who(kubeconfig, context, as_user, tuple(as_group or ()))
    place = namespace or namespace_of(who)
    chosen = _Chosen(view, None if all_namespaces else place, selecting(selector))
    printer = _Printer(chosen, output, headings=not no_headers)

    async def ask(client: Client) -> Snapshot:
        return await read(client, utc(), place)

    if watch:
        answered(who, lambda client: follow(client, place, printer.more))
    else:
        printer.all(answered(who, ask))


@dataclass(frozen=True)
class _Chosen:
    """The rows of a view, in one namespace or in all, with these labels."""

    view: View
    namespace: str | None
    selects: Callable[[Any], bool]

    def rows(self, world: Snapshot) -> list[Any]:
        return [row for row in self.view.rows(world, self.namespace) if self.selects(self.view.labels(world, row))]

    def nothing(self, world: Snapshot) -> str:
        where = ""
        if self.view.namespaced:
            where = " anywhere" if self.namespace is None else f" in namespace {self.namespace}"
        return f"{self.view.nothing}{where}{AS_FAR_AS_READ if world.unread else ''}."


class _Printer:
    """Prints rows, all of them or those that have changed since the last time."""

    def __init__(self, chosen: _Chosen, output: Output, *, headings: bool) -> None:
        self._chosen = chosen
        self._output = output
        self._headings = headings
        self._before: frozenset[Any] = frozenset()
        self._told: set[str] = set()

    def all(self, world: Snapshot) -> None:
        """Print all current rows."""
        rows = self._chosen.rows(world)
        if not rows and self._output not in (Output.JSON, Output.YAML):
            typer.echo(self._chosen.nothing(world), err=True)
        else:
            self._print(rows, world)
        self._tell_unread(world)
        if self._chosen.view.source in world.unread_kinds:
            raise typer.Exit(Exit.FORBIDDEN)  # a script must not take it for an answer

    def _tell_unread(self, world: Snapshot) -> None:
        """Print what could not be read on stderr, each once; in data it is included."""
        if self._output not in (Output.JSON, Output.YAML):
            tell_unread(one for one in world.unread if one not in self._told)
        self._told.update(world.unread)

    async def more(self, world: Snapshot) -> None:
        """Print rows that have changed; as data all rows, if any has changed."""
        rows = self._chosen.rows(world)
        now = frozenset(rows)
        if self._output in (Output.JSON, Output.YAML):
            if now != self._before or not self._before:
                self._print(rows, world)
        elif new := [row for row in rows if row not in self._before]:
            self._print(new, world)
            self._headings = False
        self._tell_unread(world)
        self._before = now

    def _print(self, rows: Sequence[Any], world: Snapshot) -> None:
        view, now = self._chosen.view, overview.now(world)
        if self._output is Output.NAME:
            print_names(view.name(row) for row in rows)
        elif self._output in (Output.TEXT, Output.WIDE):
            wide = self._output is Output.WIDE
            cells = (view.columns.cells(row, now, wide) for row in rows)
            print_rows(view.columns.headings(wide=wide), cells, headed=self._headings)
        else:
            printed(view.kind, wire({"items": rows, "unread": world.unread, "now": now}), self._output)
