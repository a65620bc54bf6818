"""The command `parley` and its subcommands, one file each; `kubectl parley` has those that only read."""

from importlib.metadata import version as installed_version

import typer

from parley.cli import cluster, controller, demo, driver, explain, get, simulate, uninstall, web

_HELP = "Negotiated resource allocation for Kubernetes."

app = typer.Typer(help=_HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
plugin = typer.Typer(
    name="kubectl parley", help=_HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


@app.command()
@plugin.command()
def version() -> None:
    """Print the version of Parley."""
    typer.echo(installed_version("parley"))


app.command("demo")(demo.demo)
app.command("controller")(controller.controller)
app.add_typer(driver.app, name="driver")
app.command("uninstall")(uninstall.uninstall)
app.command(
    "cluster",
    add_help_option=False,  # all arguments go to the command that parley-devcluster brings
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(cluster.cluster)
for readers in (app, plugin):
    readers.command("explain")(explain.explain)
    readers.command("get")(get.get)
    readers.command("simulate")(simulate.simulate)
    readers.command("web")(web.web)
