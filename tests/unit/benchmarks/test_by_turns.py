"""Which workloads and peers are measured by turns."""

import re
from pathlib import Path

import pytest
from benchmarks import by_turns
from benchmarks.__main__ import main

from parley_devcluster.gobuild import BuildError
from parley_devcluster.versions import ETCD

GO = """#!/bin/sh
case "$*" in
  *v1.31.0*) echo "k8s.io/kubernetes@v1.31.0: not in the mirror" >&2; exit 1 ;;
  *) echo '{"Dir": "/mod/k8s.io/kubernetes@v1.37.0"}' ;;
esac
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the structured peer and etcd, and a Go tool that cannot get the classic one's module."""
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    for name in ("kubernetes-v1.37.0/scheduler_perf", f"etcd-{ETCD}/etcd"):
        (tmp_path / "parley" / name).parent.mkdir(parents=True)
        (tmp_path / "parley" / name).touch()
    return tmp_path / "parley"


def test_a_peer_that_cannot_be_built_is_left_out_with_what_go_said(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ready,) = by_turns.installed(["structured", "classic"])

    assert ready.program == cache / "kubernetes-v1.37.0" / "scheduler_perf"
    assert ready.etcd == cache / f"etcd-{ETCD}" / "etcd"
    assert ready.source == Path("/mod/k8s.io/kubernetes@v1.37.0")
    told = capsys.readouterr().err
    assert "classic v1.31.0 is left out, it cannot be built: " in told
    assert "k8s.io/kubernetes@v1.31.0: not in the mirror" in told


def test_where_no_peer_can_be_built_there_is_nothing_to_compare_with(cache: Path) -> None:
    with pytest.raises(BuildError, match="not in the mirror"):
        by_turns.installed(["classic"])


def test_every_workload_that_has_a_peer_can_be_chosen_with_those_of_its_size() -> None:
    chosen = by_turns.chosen(["extender-claims1", "claims1-100nodes"])

    assert [workload.name for workload in chosen] == ["claims1-100nodes", "extender-claims1"]
    assert by_turns.chosen(by_turns.DEFAULT) == chosen


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (
            ["claims4-100nodes", "memory-5000nodes", "waiting-0"],
            "the peers have no test case like claims4-100nodes, memory-5000nodes: choose of claims1-100nodes,"
            " standalone1-100nodes, waiting-0, extender-claims1, extender-unpublished, claims1-500nodes",
        ),
        (
            ["claims1-100nodes", "claims1-500nodes"],
            "claims1-100nodes, claims1-500nodes differ in pods or nodes: compare them with the peers one by one",
        ),
    ],
)
def test_workloads_without_a_common_peer_are_refused_with_the_remedy(names: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        by_turns.chosen(names)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--workload", "claims4-100nodes"],
            "the peers have no test case like claims4-100nodes: ",
        ),
        (
            ["--against", ".."],
            "--peers measures this checkout without a profile: ",
        ),
        (["--rounds", "0"], "--rounds 0: at least one turn is needed"),
    ],
)
def test_options_that_do_not_go_with_peers_are_refused_before_anything_is_built(
    options: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "--peers", *options])

    with pytest.raises(SystemExit):
        main()

    assert told in capsys.readouterr().err
