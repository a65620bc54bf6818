"""A group of commands whose modules are imported when they are needed: `parley version` loads no HTTP client."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

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

_SETTINGS: Mapping[str, dict[str, Any]] = {
    "cluster": {
        "add_help_option": False,  # all arguments go to the command that parley-devcluster brings
        "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    }
}


def group(*names: str) -> type[TyperGroup]:
    """A class of groups that have these commands besides their own."""

    class Lazy(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*names, *super().list_commands(ctx)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return _loaded(cmd_name) if cmd_name in names else super().get_command(ctx, cmd_name)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """As an option of typer's the version would load all that typer checks options with."""
            return super().parse_args(ctx, ["version"] if args[:1] == ["--version"] else args)

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except typer.BadParameter as error:
                error.message = error.message.removeprefix("Value error, ")  # what checks options says so
                raise

    return Lazy


def _loaded(name: str) -> TyperCommand | TyperGroup:
    module, _, attribute = PLACES[name].partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        made = typer.Typer(add_completion=False, rich_markup_mode=None)
        made.command(name, **_SETTINGS.get(name, {}))(found)
        found = made
    command = typer.main.get_command(found)
    command.name = name
    assert isinstance(command, TyperCommand | TyperGroup)
    return command
