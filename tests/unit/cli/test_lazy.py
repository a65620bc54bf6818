"""What commands load: a version is printed without what only other commands need; completion."""

import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from parley.cli.driver import LAZY
from parley.cli.driver import app as driver
from parley.cli.lazily import PLACES
from parley.cli.main import READING, RUNNING, app, plugin

HEAVY = {"aiohttp", "grpc", "kubernetes", "orjson", "rich", "structlog", "yaml", "msgspec", "parley.api.models"}
"""Pydantic is not among them: typer itself loads it."""


def output(script: str) -> str:
    return subprocess.check_output([sys.executable, "-c", script], text=True)


@pytest.mark.parametrize("arguments", ["version", "--version"])
def test_the_version_is_printed_without_loading_what_it_does_not_need(arguments: str) -> None:
    script = (
        f"import sys\nfrom parley.cli.main import app\ntry:\n    app([{arguments!r}])\n"
        f"except SystemExit:\n    pass\nprint(sorted({HEAVY!r} & sys.modules.keys()))"
    )
    assert output(script).splitlines()[1] == "[]"


def test_every_command_is_where_it_is_said_to_be() -> None:
    assert set(PLACES) == {*READING, *RUNNING, *LAZY}
    commands = [(get_command(app), name) for name in (*READING, *RUNNING)]
    commands += [(get_command(driver), name) for name in LAZY]
    for group, name in commands:
        command = group.get_command(None, name)  # type: ignore[attr-defined]
        assert command is not None
        assert command.name == name


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


def test_a_shell_asks_for_commands() -> None:
    environment = {
        "_PARLEY_COMPLETE": "complete_bash",
        "COMP_WORDS": "parley ge",
        "COMP_CWORD": "1",
        "PATH": "/bin",
    }
    script = "from parley.cli.main import app; app(prog_name='parley')"
    found = subprocess.check_output([sys.executable, "-c", script], text=True, env=environment)

    assert found == "get\n"


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
