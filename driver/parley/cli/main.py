"""The command `parley` and its subcommands, one file each."""

from importlib.metadata import version as installed_version

import typer

from parley.cli import cluster, controller, demo, driver

app = typer.Typer(
    help="Negotiated resource allocation for Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("controller")(controller.controller)
app.add_typer(driver.app, name="driver")
app.add_typer(cluster.app, name="cluster")


@app.command()
def version() -> None:
    """Print the version of Parley."""
    typer.echo(installed_version("parley"))
