"""The command `parley` and its subcommands, one file each; `kubectl parley` has those that only read.

Nothing that takes long to load is imported here: see `lazily`.
"""

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]

from parley.cli.lazily import command_group

READING = ("explain", "get", "doctor", "simulate", "web", "completion")
RUNNING = ("demo", "controller", "driver", "cluster", "uninstall")

completion_init()  # typer knows no shells before

_HELP = "Negotiated resource allocation for Kubernetes."

app = command_group("parley", _HELP, *READING, *RUNNING)
plugin = command_group("kubectl parley", _HELP, *READING)


@app.callback()
@plugin.callback()
def parley() -> None:
    """Makes groups of both, whatever is registered here."""


@app.command("version")
@plugin.command("version")
def print_version() -> None:
    """Print the version of Parley; --version does, too."""
    from importlib.metadata import version

    typer.echo(version("parley"))
