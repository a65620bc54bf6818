"""Output formats of the commands (`-o`): text, or data with an `apiVersion` and a `kind`."""

from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any

import orjson
import typer

from parley.api.names import CLI_VERSION
from parley.api.wording import printable


class Output(Enum):
    """The values of `-o`."""

    TEXT = "text"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"


Format = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Print no column headings.")]


AS_FAR_AS_READ = ", as far as could be read"
"""Said with what was not found, where something could not be read."""


def print_names(names: Iterable[str]) -> None:
    """Print the names, one per line, each once."""
    for name in dict.fromkeys(names):
        typer.echo(name)


def tell_unread(unread: Iterable[str]) -> None:
    """Print what could not be read on stderr."""
    for one in unread:
        typer.echo(f"not read: {printable(one)}", err=True)


def printed(kind: str, content: dict[str, Any], output: Output) -> None:
    """Print the content as JSON or YAML, with its kind."""
    data = {"apiVersion": CLI_VERSION, "kind": kind, **content}
    if output is Output.JSON:
        typer.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
        return
    import yaml

    typer.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
