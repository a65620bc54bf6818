"""Every command in the README and in docs/: what needs no cluster is run literally, the rest has to exist.

A block's lines that begin with `$` are commands, and what follows one is what it prints; in blocks without `$`,
lines that begin with a known program are commands as well.
"""

import glob
import itertools
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from parley.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "examples").glob("*/README.md"))

PROGRAMS = ("parley", "kubectl", "make", "python", "export", "helm", "pip", "source", "mike")
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


def blocks(text: str) -> Iterator[list[str]]:
    """The lines of each block that is marked as shell, or not marked at all."""
    for language, block in re.findall(r"(?m)^ *```(\w*)\n(.*?)^ *```", text, flags=re.DOTALL):
        if language in ("", "sh", "bash", "console"):
            yield block.splitlines()


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command without its comment, and what the page shows it to print."""
    for lines in blocks(text):
        marked = any(line.startswith("$ ") for line in lines)
        if not marked:
            yield from ((_bare(line), "") for line in lines if line.split(" ")[0] in PROGRAMS)
            continue
        for part in re.split(r"(?m)^\$ ", "\n".join(lines).replace("\\\n", ""))[1:]:
            command, _, output = part.partition("\n")
            yield _bare(command), output


def _bare(line: str) -> str:
    return re.sub(r"\s{2,}#.*$", "", line).strip()


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
