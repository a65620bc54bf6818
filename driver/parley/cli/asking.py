"""Shared by read-only commands: kubectl's usual flags, the client, and messages about failed requests."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from parley.api.selectors import label_selector
from parley.cli import logs
from parley.cli.failures import end
from parley.kube.client import Client
from parley.kube.faults import Unanswerable, readable_errors
from parley.kube.http import HttpClient, HttpOptions

T = TypeVar("T")

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Default: $KUBECONFIG or ~/.kube/config.", show_default=False),
]
Context = Annotated[str, typer.Option(help="The context of the kubeconfig to use.", show_default=False)]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Default: that of the context.", show_default=False)
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")]
As = Annotated[str, typer.Option("--as", metavar="USER", help="The user to impersonate.", show_default=False)]
AsGroup = Annotated[
    list[str] | None,
    typer.Option(
        "--as-group", metavar="GROUP", help="A group to impersonate; can be repeated.", show_default=False
    ),
]
Labels = Annotated[
    str,
    typer.Option(
        "--selector", "-l", help="Only objects with these labels, such as app=web,!old.", show_default=False
    ),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep watching, and print changes.")]


def selecting(selector: str) -> Callable[[Mapping[str, str]], bool]:
    """A function that tells whether a selector selects labels. Raises typer.BadParameter."""
    try:
        return label_selector(selector)
    except ValueError as error:
        raise typer.BadParameter(f"{error}: write key=value, key!=value, key in (a, b), key or !key") from None


@dataclass(frozen=True, slots=True)
class Who:
    """The cluster to connect to, and the user."""

    kubeconfig: Path | None = None
    context: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()

    @property
    def path(self) -> str | None:
        """The path of the kubeconfig, if one was given."""
        return str(self.kubeconfig) if self.kubeconfig else None

    def client(self) -> HttpClient:
        """A client of the cluster, to be opened by `async with`."""
        options = HttpOptions(impersonate=self.user, impersonate_groups=self.groups)
        return HttpClient.from_kubeconfig(self.path, self.context or None, options)


def answered(who: Who, ask: Callable[[Client], Awaitable[T]]) -> T:
    """The result of `ask` with a client of that user. An error is printed on stderr, and ends the command."""
    return asked(who.client, ask)


def asked(connect: Callable[[], HttpClient], ask: Callable[[Client], Awaitable[T]]) -> T:
    """As `answered`, with a client from `connect`."""
    logs.silence()

    async def main() -> T:
        with readable_errors():
            async with connect() as client:
                return await ask(client)

    try:
        return asyncio.run(main())
    except Unanswerable as error:
        end(error, error.status)


def namespace_of(who: Who) -> str:
    """The namespace of the context, as kubectl chooses it; faults of the kubeconfig are reported later."""
    import yaml

    try:
        places = (who.path or os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)
        there = [path for place in places if place and (path := Path(place).expanduser()).exists()]
        files = [yaml.safe_load(path.read_text()) or {} for path in there]
        current = who.context or next((f["current-context"] for f in files if f.get("current-context")), "")
        contexts = [entry for file in files for entry in file.get("contexts") or ()]
        named = [entry["context"].get("namespace") for entry in contexts if entry["name"] == current]
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError):
        return "default"
    return str((named and named[0]) or "default")
