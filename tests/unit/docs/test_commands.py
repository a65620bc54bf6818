"""Every command in the README and in docs/: what needs no cluster is run literally, the rest has to exist."""

import glob
import itertools
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.checkout import Shell
from tests.support.shell import PROGRAMS, path, tried
from tests.support.shown import commands
from typer.main import get_command
from typer.testing import CliRunner

from parley.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "examples").glob("*/README.md"))

NEEDS_A_CLUSTER = ("explain", "get", "web", "doctor", "controller", "cluster", "uninstall")
DRIVERS = (["driver", "run"], ["driver", "conformance"])
RUN = re.compile(r"parley (demo|simulate|driver permissions|version|completion)\b")
SHORTENED = "..."
TRAINER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "trainer", "namespace": "team"},
    "spec": {"containers": [{"name": "main"}]},
}
NEW_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-9"},
    "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
}


SHOWN = [
    pytest.param(command, output, id=f"{page.relative_to(ROOT)}: {command}")
    for page in PAGES
    for command, output in commands(page.read_text())
]


def literal(command: str) -> bool:
    """Whether the command needs no cluster, and is not shortened."""
    return bool(RUN.match(command)) and SHORTENED not in command


LITERAL = {str(shown.values[0]): str(shown.values[1]) for shown in SHOWN if literal(str(shown.values[0]))}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a reader is: in a checkout, with the README's driver, a dump of a cluster, and a file of new nodes."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    (tmp_path / "licences.py").write_text(code)
    examples = [ROOT / "examples" / name for name in ("nodes.yaml", "gpu.yaml")]
    dump = [document for file in examples for document in yaml.safe_load_all(file.read_text())]
    dump.append(TRAINER)
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": dump}))
    (tmp_path / "new-nodes.yaml").write_text(yaml.safe_dump(NEW_NODE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "licences", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def run(command: str) -> str:
    """What a command of `parley` prints, with the shell's wildcards; into a file if it says so."""
    line, _, file = command.partition(" | ")[0].partition(" > ")
    words = [word for part in shlex.split(line)[1:] for word in sorted(glob.glob(part)) or [part]]  # noqa: PTH207
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    if file:
        Path(file).write_text(result.stdout)
        return ""
    return result.stdout


def test_there_are_some_of_each() -> None:
    assert len(SHOWN) > 50
    assert len(LITERAL) >= 6


@pytest.mark.parametrize("command", LITERAL)
def test_what_needs_no_cluster_is_run(folder: Path, command: str) -> None:
    assert run(command).startswith(LITERAL[command])


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_commands_exist(command: str, output: str) -> None:
    words = [word for word in command.split() if not re.match(r"[A-Z_]+=", word)]
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
        assert {word for word in words[1:] if re.fullmatch(r"[a-z-]+", word)} - {"is"} <= targets
    elif words[0] == "parley":
        group = get_command(app)
        named = group.get_command(group.context_class(group), words[1])  # type: ignore[attr-defined]
        assert named is not None, words[1]
        assert words[1] in NEEDS_A_CLUSTER or RUN.match(" ".join(words)) or words[1:3] in DRIVERS
    elif words[0] == "python" and words[1] == "-m":
        assert (ROOT / words[2].replace(".", "/")).exists() or (ROOT / f"{words[2].replace('.', '/')}.py").exists()
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file()
    elif words[0] == "kubectl":
        files = [word for before, word in itertools.pairwise(words) if before in ("-f", "-k")]
        assert [name for name in files if "/" in name and not (ROOT / name).exists()] == []


def options_of(words: list[str]) -> set[str]:
    """The long options of the command of `parley` that the words begin with."""
    command: Any = get_command(app)
    for word in words[1:]:
        if not hasattr(command, "commands"):
            break
        found = command.get_command(command.context_class(command), word)
        assert found is not None, words
        command = found
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


IN_SENTENCES = sorted(
    {code for page in PAGES for code in re.findall(r"`(parley (?!cluster)[a-z][^`]*)`", page.read_text())}
)
"""Without those of `parley cluster`, which the development cluster's own program has."""


@pytest.mark.parametrize("command", IN_SENTENCES)
def test_commands_in_sentences_exist_and_have_these_options(command: str) -> None:
    words = re.split(r"[ =]", re.split(r" [|>] |, ", command)[0])

    assert {word for word in words if word.startswith("--")} - {"--help"} <= options_of(words)


NATIVE = "tests/integration/native/test_docs.py"
USER = "tests/e2e/test_as_a_user.py"
INSTALL = "tests/integration/install/test_docs.py"
INSTALL_PAGE = "tests/e2e/test_install_page.py"
SIGNING = "tests/unit/tools/test_signing.py"
ELSEWHERE: tuple[tuple[str, str, str], ...] = (
    ("README.md", r"parley explain pod render-3", "tests/unit/docs/test_readme.py"),
    ("README.md", r"parley (controller|driver run|explain pod gpu|get classes|web|doctor)", NATIVE),
    ("README.md", r"make cluster|export |kubectl ", USER),
    ("", r"make demo", "tests/unit/docs/test_commands.py"),
    ("docs/cli.md", r"source ", "tests/unit/docs/test_commands.py"),
    ("docs/doctor.md", r"kubectl parley doctor", "tests/integration/doctor/test_doctor.py"),
    ("docs/driver-protocol.md", r"parley driver conformance", "tests/integration/driver/test_conformance.py"),
    ("docs/explain.md", r"kubectl get (namespaces,|podschedulings)|parley explain", NATIVE),
    ("docs/explain.md", r"parley get classes", "tests/unit/cli/test_get.py"),
    ("docs/extender.md", r"(kubectl|helm) ", INSTALL),
    ("docs/releasing.md", r"export PATH|mike ", "tests/integration/docs/test_versions.py"),
    ("docs/install.md", r"helm (install|lint|upgrade|rollback|history) |helm uninstall .* --wait", INSTALL_PAGE),
    ("docs/install.md", r"kubectl (create|label|apply -f|wait|exec|get|delete -f) ", INSTALL_PAGE),
    ("docs/install.md", r"helm uninstall .* --no-hooks|parley uninstall|kubectl (apply|delete) .*-k ", INSTALL),
    ("docs/node-driver.md", r"PYTHONPATH=\. parley-kubelet ", "tests/e2e/test_tutorials.py"),
    ("docs/quickstart.md", r"make cluster|export ", USER),
    ("docs/quickstart.md", r"kubectl |parley (explain|driver run)", NATIVE),
    ("docs/releasing.md", r"python -m tools.release ", "tests/unit/tools/test_release.py"),
    ("docs/releasing.md", r"python -m tools.signing |ssh-keygen|sha256sum", SIGNING),
    ("docs/runbook.md", r"", INSTALL_PAGE),
    ("docs/testing.md", r"python -m tests.soak", "tests/unit/soak/test_soak.py"),
    ("docs/tokens-driver.md", r"parley driver run tokens", NATIVE),
    ("docs/web.md", r"parley web", NATIVE),
    ("docs/web.md", r"kubectl -n parley-system port-forward", "tests/e2e/test_chart.py"),
    ("docs/workspaces.md", r"", INSTALL),
)
"""Page, beginning of commands, and the test that runs them as they stand there."""

NOT_RUN: tuple[tuple[str, str, str], ...] = (
    ("README.md", r"make test", "it would run itself"),
    (
        "docs/releasing.md",
        r"skopeo copy ",
        "skopeo is no requirement; tests/integration/container loads the archive",
    ),
    ("docs/testing.md", r"make soak", "minutes to hours; tests/unit/soak makes a hundred thousand of its steps"),
    ("docs/testing.md", r"make crowd", "hours; tests/e2e/test_random_pods.py runs it with fewer pods"),
    ("docs/testing.md", r"make kind", "`make test` runs its tests where its image is built; no test runs tests"),
)
"""Page ("" for all), beginning of commands, and why no test runs them as they stand there."""


def rows(table: tuple[tuple[str, str, str], ...], page: str, command: str) -> list[str]:
    return [what for where, begins, what in table if where in ("", page) and re.match(begins, command)]


OF_DOCS = [
    pytest.param(str(page.relative_to(ROOT)), command, id=f"{page.relative_to(ROOT)}: {command}")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for command, _ in commands(page.read_text())
]


@pytest.mark.parametrize(("page", "command"), OF_DOCS)
def test_every_command_is_run_by_a_test_or_it_is_said_why_not(page: str, command: str) -> None:
    by = [__file__] if literal(command) else rows(ELSEWHERE, page, command)

    assert len(by) == 1 or rows(NOT_RUN, page, command), f"{page}: {command}: run by {by}"
    assert all((ROOT / test).is_file() for test in by)


def test_the_demo_runs_by_make(tmp_path: Path) -> None:
    printed = Shell.in_a_checkout(tmp_path, COLUMNS="200")("make demo")

    assert "default/gpu" in printed


def test_completion_is_a_script_that_bash_takes(folder: Path) -> None:
    (command,) = [
        command for command, _ in commands((ROOT / "docs" / "cli.md").read_text()) if "source" in command
    ]

    done = tried(command, folder, {"PATH": path(PROGRAMS)})

    assert (done.returncode, done.stderr) == (0, "")
