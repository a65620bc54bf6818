"""The command `parley` and its subcommands, one file each; `kubectl parley` has those that only read.

Nothing that takes long to load is imported here: see `lazily`.
"""

from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from parley.cli.completion import completion
from parley.cli.lazily import group

READING = ("explain", "get", "doctor", "simulate", "web")
RUNNING = ("demo", "controller", "driver", "cluster")

_HELP = "Negotiated resource allocation for Kubernetes."


def _made(name: str, *commands: str) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=group(*commands),
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _made("parley", *READING, *RUNNING)
plugin = _made("kubectl parley", *READING)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(installed_version("parley"))
        raise typer.Exit


@app.callback()
@plugin.callback()
def parley(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """What all commands have in common: nothing."""


@app.command()
@plugin.command()
def version() -> None:
    """Print the version of Parley."""
    typer.echo(installed_version("parley"))


app.command()(completion)
plugin.command()(completion)
