"""Completion of command lines: scripts for shells, and the program that kubectl calls for `kubectl parley`.

kubectl runs a program `kubectl_complete-parley` with the words so far, and wants one completion a line, and a
directive at the end (kubectl 1.26 and later, `kubectl plugin --help`).
"""

import os
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from parley.stdout import guarded

_NO_FILES = ":4"
"""Cobra's directive: these are all, do not complete file names."""

_AS_FISH = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_KUBECTL_PARLEY_COMPLETE": "complete_fish"}
"""Makes a program print its completions for fish, which are in the form that kubectl wants, too."""


class Shell(Enum):
    """A shell that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.")]
) -> None:
    """Print a completion script: `source <(parley completion bash)`."""
    name = (context.find_root().info_name or "parley").rpartition("/")[2]
    variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
    typer.echo(get_completion_script(prog_name=name, complete_var=variable, shell=shell.value))


def for_kubectl() -> None:
    """The program `kubectl_complete-parley`."""
    from parley.cli.main import plugin

    with guarded():
        complete(plugin, sys.argv[1:])


def complete(program: typer.Typer, words: Sequence[str]) -> None:
    """Print the completions of the last word, and the directive."""
    os.environ.update(_AS_FISH, _TYPER_COMPLETE_ARGS=" ".join(["kubectl-parley", *words]))
    try:
        program(prog_name="kubectl-parley")
    except SystemExit as ended:  # as it does when it has printed them
        if ended.code:
            raise
    print(_NO_FILES)
