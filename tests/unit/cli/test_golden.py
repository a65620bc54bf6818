"""What the commands print, word for word, in each of their formats: the files in golden/.

`GOLDEN=write pytest tests/unit/cli/test_golden.py` writes them anew: look at the difference before you commit it.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli import test_doctor, test_get
from tests.unit.cli.serving import served
from tests.unit.doctor.healthy import NOW
from typer.testing import CliRunner

from parley.cli.main import app, plugin
from parley.simulate.virtual_time import run

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parents[3] / "examples"
ANSWERS: dict[str, Callable[[], Any]] = {"cluster": test_get.a_cluster, "installed": test_doctor.a_cluster}

FORMATS = ("text", "wide", "name", "json", "yaml")
LISTED = ("classes", "uses", "waiting")
PODS = ("first", "second", "third", "fourth")

CASES = {
    "help": ("cluster", ("-h",)),
    "get-help": ("cluster", ("get", "-h")),
    "get-nothing-of-that-name": ("cluster", ("get", "colours")),
    "explain-no-such-pod": ("cluster", ("explain", "pod", "nobody")),
    **{f"get-{what}-{how}": ("cluster", ("get", what, "-A", "-o", how)) for what in LISTED for how in FORMATS},
    **{f"get-{what}-no-headers": ("cluster", ("get", what, "-A", "--no-headers")) for what in LISTED},
    **{f"explain-{name}": ("cluster", ("explain", "pod", name)) for name in PODS},
    "explain-node": ("cluster", ("explain", "node", "a")),
    **{f"explain-second-{how}": ("cluster", ("explain", "pod", "second", "-o", how)) for how in FORMATS[1:]},
    **{f"doctor-{how}": ("installed", ("doctor", "-o", how)) for how in FORMATS},
    **{f"doctor-of-another-cluster-{how}": ("cluster", ("doctor", "-o", how)) for how in FORMATS},
}

PASSING = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UID"),
    (r"\b(gpu-[0-9]+)-[a-z0-9]{5}\b", r"\1-xxxxx"),
    (r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", "TIME"),
    (r"\b[0-9]+ (s|min|h|d)\b", "N s"),
    (r"127\.0\.0\.1:[0-9]+", "SERVER"),
)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """A kubeconfig for each."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(served(run(make()), tmp_path_factory.mktemp(name)))
            for name, make in ANSWERS.items()
        }


@pytest.mark.parametrize("name", CASES)
def test_it_prints_what_it_printed(name: str, clusters: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.cli.doctor.utc", lambda: NOW)
    monkeypatch.setenv("COLUMNS", "140")
    cluster, arguments = CASES[name]
    given = arguments if "-h" in arguments else (*arguments, "--kubeconfig", str(clusters[cluster]))
    result = CliRunner().invoke(plugin, list(given))
    printed = f"$ kubectl parley {' '.join(arguments)}\n{result.stdout}"
    printed += f"--- stderr\n{result.stderr}" if result.stderr else ""
    printed += f"--- exit status {result.exit_code}\n"
    compare(name, printed)


@pytest.mark.parametrize("how", ["text", "wide", "name"])
@pytest.mark.parametrize("command", ["demo", "simulate"])
def test_simulations_print_what_they_printed(command: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(EXAMPLES.parent)
    files = sorted(str(path.relative_to(EXAMPLES.parent)) for path in (EXAMPLES / "pipeline").glob("*.yaml"))
    arguments = [command, *files, "-o", how]
    result = CliRunner().invoke(app, arguments)
    printed = f"$ parley {' '.join(arguments)}\n{result.stdout}--- exit status {result.exit_code}\n"
    compare(f"{command}-{how}", printed)


def compare(name: str, printed: str) -> None:
    for pattern, replacement in PASSING:
        printed = re.sub(pattern, replacement, printed)
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(printed)
    assert printed == file.read_text()


def test_no_file_is_left_over() -> None:
    made = {f"{command}-{how}" for command in ("demo", "simulate") for how in ("text", "wide", "name")}
    assert {path.stem for path in GOLDEN.iterdir()} == {*CASES, *made}
