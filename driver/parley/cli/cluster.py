"""`parley cluster`: the commands of the distribution `parley-devcluster`, which a cluster itself does not need."""

from importlib.metadata import entry_points

import typer

GROUP = "parley.commands"
"""The entry points by which another distribution adds a command."""

_MISSING = (
    "error: `parley cluster` comes with the distribution parley-devcluster, which is not installed:"
    " run `pip install ./devcluster` in a checkout of Parley"
)


def cluster(context: typer.Context) -> None:
    """Run a real Kubernetes on this machine (parley-devcluster)."""
    found = entry_points(group=GROUP, name="cluster")
    if not found:
        typer.echo(_MISSING, err=True)
        raise typer.Exit(1)
    (command,) = found
    command.load()(context.args, prog_name=context.command_path)
