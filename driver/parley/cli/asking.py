"""What commands that only read have in common: kubectl's usual flags, the client, and how an answer is printed."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
import typer
import yaml

from parley.cli import logs
from parley.explain.errors import Unanswerable, readable_errors
from parley.explain.model import wire
from parley.kube.client import Client
from parley.kube.http import HttpClient

T = TypeVar("T")

FAILED = 1


class Output(Enum):
    """As what an answer is printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Default: $KUBECONFIG or ~/.kube/config.", show_default=False),
]
Context = Annotated[str, typer.Option(help="The context of the kubeconfig to use.", show_default=False)]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Default: the one of the context.", show_default=False)
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="As what to print the answer.")]


def answered(kubeconfig: Path | None, context: str, ask: Callable[[Client], Awaitable[T]]) -> T:
    """Ask the cluster. What keeps it from answering is told on stderr, and ends the command."""
    logs.silence()

    async def main() -> T:
        with readable_errors():
            async with HttpClient.from_kubeconfig(_path(kubeconfig), context or None) as client:
                return await ask(client)

    try:
        return asyncio.run(main())
    except Unanswerable as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(FAILED) from None


def _path(kubeconfig: Path | None) -> str | None:
    return str(kubeconfig) if kubeconfig else None


def namespace_of(kubeconfig: Path | None, context: str) -> str:
    """The namespace of the context, as kubectl chooses it; whatever is wrong with the file is told later."""
    try:
        places = (_path(kubeconfig) or os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)
        files = [yaml.safe_load(Path(place).expanduser().read_text()) or {} for place in places if place]
        current = context or next((f["current-context"] for f in files if f.get("current-context")), "")
        contexts = [entry for file in files for entry in file.get("contexts") or ()]
        named = [entry["context"].get("namespace") for entry in contexts if entry["name"] == current]
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError):
        return "default"
    return str((named and named[0]) or "default")


def printed(value: Any, output: Output) -> None:
    """As JSON or YAML."""
    data = wire(value)
    if output is Output.JSON:
        typer.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
