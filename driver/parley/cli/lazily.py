"""Groups of commands, with kubectl's habits: `-h`, plain text, and modules that are imported when they are needed.

`parley version` loads no HTTP client, and `parley --help` no command.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from parley.loading import quick_imports
from parley.stdout import guarded

PLACES: Mapping[str, str] = {
    "explain": "parley.cli.explain:explain",
    "get": "parley.cli.get:get",
    "doctor": "parley.cli.doctor:doctor",
    "simulate": "parley.cli.simulate:simulate",
    "web": "parley.cli.web:web",
    "completion": "parley.cli.completion:completion",
    "demo": "parley.cli.demo:demo",
    "controller": "parley.cli.controller:controller",
    "driver": "parley.cli.driver:app",
    "conformance": "parley.cli.conformance:conformance",
    "cluster": "parley.cli.cluster:cluster",
    "uninstall": "parley.cli.uninstall:uninstall",
}
"""Where each command's function, or group of commands, is."""

SUMMARIES: Mapping[str, str] = {
    "explain": "Explain why a pod waits, or why it is on its node.",
    "get": "List what classes have, who uses what, or who waits in line.",
    "doctor": "Check Parley in a cluster: what is wrong, and how to fix it.",
    "simulate": "Show where pods would run, in a simulated copy of a cluster.",
    "web": "Serve a page that shows why pods wait and who holds what.",
    "completion": "Print a completion script: `source <(parley completion bash)`.",
    "demo": "Negotiate for pods in a simulated cluster, without Kubernetes.",
    "controller": "Run the controller: negotiate for the pods of a cluster.",
    "driver": "Standalone drivers.",
    "conformance": "Check a standalone driver against the driver protocol.",
    "cluster": "Run a real Kubernetes on this machine (parley-devcluster).",
    "uninstall": "Check whether Parley can be removed, or clean up afterwards.",
}
"""The first sentence of each command's help: lists of commands, which a shell completes too, load none of them."""

_SETTINGS: Mapping[str, dict[str, Any]] = {
    "cluster": {
        "add_help_option": False,  # all arguments go to the command that parley-devcluster brings
        "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    }
}


def command_group(name: str, text: str, *commands: str) -> typer.Typer:
    """A group of these commands and of those that are registered on it; `text` is what its help begins with."""
    return _Program(
        name=name,
        cls=_lazy(*commands),
        help=text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain text, as kubectl's
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class _Program(typer.Typer):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with guarded():
            return super().__call__(*args, **kwargs)


def _lazy(*names: str) -> type[TyperGroup]:
    """A class of groups that have these commands besides their own."""

    class Lazy(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*names, *super().list_commands(ctx)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return _loaded(cmd_name) if cmd_name in names else super().get_command(ctx, cmd_name)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            self._listed().format_commands(ctx, formatter)

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            listed = self._listed()
            return listed.shell_complete(listed.context_class(listed, parent=ctx.parent), incomplete)

        def _listed(self) -> TyperGroup:
            """The same with no more than names and summaries."""
            lazy = {name: TyperCommand(name, help=SUMMARIES[name]) for name in names}
            return TyperGroup(name=self.name, params=self.params, commands={**lazy, **self.commands})

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """As an option of typer's the version would load all that typer checks options with."""
            asks = args[:1] == ["--version"] and "version" in self.commands
            return super().parse_args(ctx, ["version"] if asks else args)

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except typer.BadParameter as error:
                error.message = error.message.removeprefix("Value error, ")  # what checks options says so
                raise

    return Lazy


def _loaded(name: str) -> TyperCommand | TyperGroup:
    module, _, attribute = PLACES[name].partition(":")
    with quick_imports():
        found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        made = typer.Typer(add_completion=False, rich_markup_mode=None)
        made.command(name, **_SETTINGS.get(name, {}))(found)
        found = made
    command = typer.main.get_command(found)
    command.name = name
    assert isinstance(command, TyperCommand | TyperGroup)
    return command
