"""The command's own words: version, help, and what `parley cluster` says where there is no cluster."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from parley.cli.main import app, plugin


def parley(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", parley("version").stdout)


@pytest.mark.parametrize("command", ["demo", "controller", "cluster", "version"])
def test_help_lists_every_command(command: str) -> None:
    assert f" {command} " in parley("--help").stdout


@pytest.mark.parametrize("group", [("parley",), ("parley", "driver"), ("kubectl parley",)], ids=" ".join)
def test_lists_of_commands_say_what_each_does_in_full(group: tuple[str, ...]) -> None:
    """click ends a sentence at three dots, and cuts what does not fit into a line."""
    assert (
        "..." not in CliRunner().invoke(COMMANDS[group], [*group[1:], "--help"]).stdout.partition("Commands:")[2]
    )


def all_commands(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """The words that lead to each command below this one, groups included."""
    yield words
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for name in command.list_commands(context):
            yield from all_commands(command.get_command(context, name), *words, name)


COMMANDS: dict[tuple[str, ...], Any] = {
    **{("parley", *words): app for words in all_commands(get_command(app))},
    **{("parley", "cluster", name): app for name in ("up", "down", "status")},
    **{("kubectl parley", *words): plugin for words in all_commands(get_command(plugin))},
}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_kubectls_short_option_for_help_in_plain_text(words: tuple[str, ...]) -> None:
    long, short = (CliRunner().invoke(COMMANDS[words], [*words[1:], option]) for option in ("--help", "-h"))

    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert short.stdout.startswith("Usage: ")
    assert short.stdout.isascii()  # no frames
    assert "--install-completion" not in short.stdout


LISTING = [("get",), ("doctor",), ("demo",), ("simulate",), ("uninstall",), ("driver", "conformance")]
OF_A_CLUSTER = [("explain",), ("get",), ("doctor",), ("web",), ("uninstall",)]


def options(*words: str) -> set[str]:
    """The options of a command, as its help has them."""
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", parley(*words, "-h").stdout.partition("Options:")[2]))


@pytest.mark.parametrize("words", LISTING, ids=" ".join)
def test_what_lists_has_kubectls_formats_and_may_leave_out_headings(words: tuple[str, ...]) -> None:
    assert {"-o", "--output", "--no-headers"} <= options(*words)
    assert "--output <text|wide|name|json|yaml>" in parley(*words, "-h").stdout


@pytest.mark.parametrize("words", OF_A_CLUSTER, ids=" ".join)
def test_what_asks_a_cluster_is_told_which_and_as_whom_as_kubectl_is(words: tuple[str, ...]) -> None:
    assert {"--kubeconfig", "--context", "-n", "--namespace", "--as", "--as-group"} <= options(*words)


def test_cluster_without_the_distribution_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.cli.cluster.entry_points", lambda **_: ())

    result = parley("cluster", "up")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: `parley cluster` comes with the distribution parley-devcluster, which is not installed:"
        " run `pip install ./devcluster` in a checkout of Parley\n"
    )


def test_the_development_cluster_is_imported_only_for_its_command() -> None:
    script = "import sys, parley.cli.main; print([m for m in sys.modules if m.startswith('parley_devcluster')])"

    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


def test_status_where_no_cluster_is(tmp_path: Path) -> None:
    result = parley("cluster", "status", "--directory", tmp_path)

    assert result.exit_code == 1
    assert result.stderr == f"error: no cluster runs in {tmp_path}: start one with `make cluster`\n"


def test_down_where_no_cluster_is(tmp_path: Path) -> None:
    result = parley("cluster", "down", "--directory", tmp_path)

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "there was no cluster\n")


def test_up_with_a_kubeconfig_that_does_not_exist(tmp_path: Path) -> None:
    result = parley("cluster", "up", "--directory", tmp_path, "--kubeconfig", tmp_path / "none")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert str(tmp_path / "none") in result.stderr


def test_up_with_a_cluster_of_ones_own_prints_its_kubeconfig_and_what_comes_next(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("{}")

    result = parley("cluster", "up", "--directory", tmp_path, "--kubeconfig", mine)

    assert result.exit_code == 0
    assert result.stdout == f"{mine}\n"
    assert f"export KUBECONFIG={mine}" in result.stderr
    assert "kubectl apply -k " in result.stderr
