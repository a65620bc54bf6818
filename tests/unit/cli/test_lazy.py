"""What commands load: a version is printed without what only other commands need; completion."""

import os
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from parley.cli.driver import LAZY
from parley.cli.driver import app as driver
from parley.cli.lazily import PLACES, SUMMARIES
from parley.cli.main import READING, RUNNING, app, plugin

HEAVY = {"aiohttp", "grpc", "kubernetes", "orjson", "rich", "structlog", "yaml", "msgspec", "parley.api.models"}
"""Pydantic is not among them: typer itself loads it."""


def output(script: str) -> str:
    return subprocess.check_output([sys.executable, "-c", script], text=True)


@pytest.mark.parametrize("arguments", ["version", "--version", "--help", ""])
def test_versions_and_lists_of_commands_are_printed_without_loading_what_commands_need(arguments: str) -> None:
    script = (
        f"import sys\nfrom parley.cli.main import app\ntry:\n    app({arguments.split()!r})\n"
        f"except SystemExit:\n    pass\nprint(sorted({HEAVY!r} & sys.modules.keys()))"
    )
    assert output(script).splitlines()[-1] == "[]"


def test_every_command_is_where_it_is_said_to_be() -> None:
    assert set(PLACES) == set(SUMMARIES) == {*READING, *RUNNING, *LAZY}
    commands = [(get_command(app), name) for name in (*READING, *RUNNING)]
    commands += [(get_command(driver), name) for name in LAZY]
    for group, name in commands:
        command = group.get_command(None, name)  # type: ignore[attr-defined]
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(limit=100) == SUMMARIES[name]


@pytest.mark.parametrize("program", [app, plugin])
def test_h_is_help_everywhere(program: object) -> None:
    for command in ([], ["get"], ["doctor"], ["explain"], ["simulate"]):
        result = CliRunner().invoke(program, [*command, "-h"])  # type: ignore[arg-type]
        assert result.exit_code == 0
        assert result.stdout.startswith("Usage: ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell], prog_name="parley")

    assert result.exit_code == 0
    assert f"_PARLEY_COMPLETE=complete_{shell}" in result.stdout


def completed(words: str) -> tuple[str, str]:
    """What bash may write for the last of the words, and what of that took long to load."""
    environment = {
        **os.environ,
        "_PARLEY_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    script = (
        "import sys\nfrom parley.cli.main import app\ntry:\n    app(prog_name='parley')\n"
        f"finally:\n    print(sorted({HEAVY!r} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "found"), [("parley ge", "get\n"), ("parley do", "doctor\n"), ("parley --he", "--help\n")]
)
def test_a_shell_asks_for_commands_and_none_is_loaded(words: str, found: str) -> None:
    assert completed(words) == (found, "[]\n")


def test_a_shell_asks_for_commands_of_a_group() -> None:
    assert completed("parley driver ")[0] == "conformance\nrun\npermissions\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ge"], ["get"]),
        (["get", "wa"], ["waiting"]),
        (["get", "--no-h"], ["--no-headers"]),
        (["contr"], []),
    ],
)
def test_kubectl_asks_for_completions_of_the_plugin(words: list[str], found: list[str]) -> None:
    script = f"import sys; sys.argv[1:] = {words!r}; from parley.cli.completion import for_kubectl; for_kubectl()"

    *lines, directive = output(script).splitlines()

    assert [line.partition("\t")[0] for line in lines if line] == found
    assert directive == ":4"
