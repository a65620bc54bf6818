"""The command `parley` and its subcommands, one file each; `kubectl parley` has those that only read.

Nothing that takes long to load is imported here: see `lazily`.
"""

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]

from parley.cli.lazily import group

READING = ("explain", "get", "doctor", "simulate", "web", "completion")
RUNNING = ("demo", "controller", "driver", "cluster", "uninstall")

completion_init()  # typer knows no shells before

_HELP = "Negotiated resource allocation for Kubernetes."


def _made(name: str, *commands: str) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=group(*commands),
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain text, as kubectl's
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _made("parley", *READING, *RUNNING)
plugin = _made("kubectl parley", *READING)


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
