"""`parley explain pod NAME`: why a pod waits, or why it is where it is."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import typer

from parley.api.exits import Exit
from parley.api.resources import PODS
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
from parley.cli.output import AS_FAR_AS_READ, Format, Output, printed, tell_unread
from parley.explain.errors import NothingToExplain
from parley.explain.explaining import explain as explain_one
from parley.explain.explaining import explain_in, explain_waiting, namespaces_of, read_pod
from parley.explain.model import Explanation, timeless, wire
from parley.explain.snapshot import Snapshot, read
from parley.explain.text import console, show
from parley.kube.client import Client
from parley.kube.clock import utc
from parley.kube.faults import readable_errors

_PODS = ("pod", "pods", "po")


def explain(
    what: Annotated[
        list[str],
        typer.Argument(metavar="pod [NAME]", help="`pod NAME` or `pod/NAME`; without a name, all pods that wait."),
    ],
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    selector: Labels = "",
    watch: Watch = False,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    as_user: As = "",
    as_group: AsGroup = None,
    output: Format = Output.TEXT,
) -> None:
    """Explain why a pod waits, or why it is on its node.

    Shows the pod's claims and what they hold, which nodes are viable and why others are not, which drivers have
    not answered yet, what scheduler, kubelet and node plugin reported, and what would help. Reads the API only.
    """
    name = _name(what)
    if name and selector:
        raise typer.BadParameter("a name and --selector exclude each other: leave one of them out")
    selects = selecting(selector)
    who = Who(kubeconfig, context, as_user, tuple(as_group or ()))
    place = namespace or namespace_of(who)

    question = _Question(place, name, all_namespaces, selects)
    printer = _Printer(output, "in any namespace" if all_namespaces else f"in namespace {place}")
    if watch:
        answered(who, lambda client: question.follow(client, printer))
    else:
        answer = answered(who, question.ask)
        printer.print(answer)
        if answer.is_blind:
            raise typer.Exit(Exit.FORBIDDEN)  # a script must not take it for an answer


def _name(what: list[str]) -> str:
    """The pod's name; "" for all pods."""
    kind, slash, name = what[0].partition("/")
    if kind not in _PODS or len(what) > 2 or (slash and len(what) > 1):
        raise typer.BadParameter(f"{' '.join(what)!r}: only pods can be explained: write `pod NAME` or `pod/NAME`")
    return name or (what[1] if len(what) > 1 else "")


class _Answer(NamedTuple):
    """Explanations, and what could not be read. `is_blind`: no pod could."""

    explanations: list[Explanation]
    unread: Sequence[str] = ()
    is_blind: bool = False


@dataclass(frozen=True)
class _Question:
    """The question to answer: a pod, or all waiting pods in the namespace or in all."""

    namespace: str
    name: str
    everywhere: bool
    selects: Callable[[Mapping[str, str]], bool]

    async def ask(self, client: Client) -> _Answer:
        """Answer once."""
        if not self.name:
            return await self._of_waiting(client, await read(client, utc(), self.namespace))
        return await self._named(client, lambda where: explain_one(client, utc(), where, self.name))

    async def follow(self, client: Client, printer: "_Printer") -> None:
        """Answer again whenever the answer changes."""

        async def again(world: Snapshot) -> None:
            with readable_errors():
                printer.print_if_new(await self._in(client, world))

        await follow(client, self.namespace, again)

    async def _in(self, client: Client, world: Snapshot) -> _Answer:
        async def explained(where: str) -> Explanation:
            return explain_in(world, await read_pod(client, where, self.name))

        return await (self._named(client, explained) if self.name else self._of_waiting(client, world))

    async def _named(self, client: Client, one: Callable[[str], Awaitable[Explanation]]) -> _Answer:
        """Explains the pods of that name. Pods without Parley claims are an error only if all are such."""
        found, refusal = [], None
        for where in await namespaces_of(client, self.name) if self.everywhere else [self.namespace]:
            try:
                found.append(await one(where))
            except NothingToExplain as error:
                refusal = error
        if refusal is not None and not found:
            raise refusal
        return _Answer(found)

    async def _of_waiting(self, client: Client, world: Snapshot) -> _Answer:
        where = None if self.everywhere else self.namespace
        explanations = await explain_waiting(client, world, where, self.selects)
        return _Answer(explanations, world.unread, PODS in world.unread_kinds)


class _Printer:
    """Prints explanations that differ from the last printed ones."""

    def __init__(self, output: Output, where: str) -> None:
        self._output = output
        self._where = where
        self._before: list[Explanation] | None = None

    def print_if_new(self, answer: _Answer) -> None:
        """Print the explanations, unless they differ from the last ones in nothing but time."""
        now = [timeless(one) for one in answer.explanations]
        if now != self._before:
            self._before = now
            self.print(answer)

    def print(self, answer: _Answer) -> None:
        """Print the explanations as text, names or data."""
        explanations, unread, _ = answer
        if self._output in (Output.JSON, Output.YAML):
            printed("PodExplanationList", {"items": wire(explanations)}, self._output)
        elif not explanations:
            sure = AS_FAR_AS_READ if unread else ""
            typer.echo(f"No pod with Parley claims is waiting {self._where}{sure}.", err=True)
            tell_unread(unread)
        elif self._output is Output.NAME:
            for one in explanations:
                typer.echo(f"pod/{one.name}")
        else:
            self._show(explanations)

    def _show(self, explanations: list[Explanation]) -> None:
        out = console()
        for number, one in enumerate(explanations):
            if number:
                out.print()
            show(out, one, every_node=self._output is Output.WIDE)
