"""Where nothing can be printed, a program ends with one sentence; where its reader has gone, without a word."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli import test_get
from tests.unit.cli.serving import served

from parley.simulate.virtual_time import run

PIPELINE = sorted(map(str, (Path(__file__).parents[3] / "examples" / "pipeline").glob("*.yaml")))
NO_ROOM = Path("/dev/full")
FULL = "error: stdout can't be written: no space left on device: make room, or print elsewhere\n"

PRINTING = {
    "version": ("parley", "version"),
    "help": ("parley", "get", "-h"),
    "completion": ("parley", "completion", "bash"),
    "demo": ("parley", "demo", *PIPELINE),
    "simulate": ("parley", "simulate", *PIPELINE, "-o", "json"),
    "get": ("parley", "get", "classes"),
    "get as YAML": ("parley", "get", "uses", "-A", "-o", "yaml"),
    "explain": ("parley", "explain", "pods", "-A"),
    "explain --watch": ("parley", "explain", "pods", "-A", "--watch"),
    "doctor": ("parley", "doctor"),
    "node plugin": ("parley_kubelet", "version"),
    "node plugin's help": ("parley_kubelet", "--help"),
}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with served(run(test_get.a_cluster()), tmp_path_factory.mktemp("cluster")) as path:
        yield path


def said(command: str, kubeconfig: Path, stdout: int, *, buffered: bool) -> tuple[int, str]:
    """The exit status, and what is on stderr but for the trouble that a watch has with this server."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "" if buffered else "1"}
    ended = subprocess.run(
        [sys.executable, "-m", *PRINTING[command]],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    lines = ended.stderr.splitlines(keepends=True)
    return ended.returncode, "".join(line for line in lines if not line.startswith("may be old: WATCH"))


@pytest.mark.parametrize("command", PRINTING)
def test_a_full_disk(command: str, kubeconfig: Path) -> None:
    with NO_ROOM.open("wb") as full:
        assert said(command, kubeconfig, full.fileno(), buffered=True) == (1, FULL)


def test_a_full_disk_without_a_buffer(kubeconfig: Path) -> None:
    with NO_ROOM.open("wb") as full:
        assert said("node plugin", kubeconfig, full.fileno(), buffered=False) == (1, FULL)


@pytest.mark.parametrize("command", ["version", "demo", "explain --watch", "node plugin's help"])
def test_a_reader_that_has_gone(command: str, kubeconfig: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert said(command, kubeconfig, writing, buffered=True) == (1, "")
    finally:
        os.close(writing)


def test_completions_for_kubectl() -> None:
    script = "import sys; sys.argv[1:] = ['ge']; from parley.cli.completion import for_kubectl; for_kubectl()"
    with NO_ROOM.open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, FULL)
