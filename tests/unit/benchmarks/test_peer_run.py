"""How scheduler_perf is run and watched; a script stands in for it, and for its etcd."""

import re
import time
from pathlib import Path

import pytest
from benchmarks.peer_run import Installed, run
from benchmarks.peers import STRUCTURED

from parley_devcluster.processes import identify

SHIPPED = """
- name: SchedulingWithResourceClaimTemplate
  workloadTemplate: []
  workloads: [{name: 2000pods_200nodes, params: {measurePods: 1000, nodesWithDRA: 200}}]
"""

BOUND = """
bound() {
  echo "I$(date +'%m%d %H:%M:%S.%6N') 7 one.go:4] \\"Successfully bound pod to node\\" pod=\\"test/$1\\""
}
"""

WORKS = f"""
{BOUND}
results=$(printf '%s\\n' "$@" | sed -n 's/^-data-items-dir=//p')
mkdir "$results"
cp performance-config.yaml templates/node.yaml "$results"
etcd &
sleep 0.3
echo '    executor.go:731: creating 2 pods in namespace "test"'
sleep 2
bound a
bound b
sleep 0.3
cat > "$results/figures.json" <<END
{{"version": "v1", "dataItems": [{{"labels": {{"Metric": "SchedulingThroughput"}}, "data": {{"Average": 3.21}}}}]}}
END
"""


def program(path: Path, lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{lines}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The module's files in a module cache."""
    source = tmp_path / "mod" / "k8s.io" / "kubernetes@v1.37.0"
    shipped = source / STRUCTURED.folder
    (shipped / "templates").mkdir(parents=True)
    (shipped / "templates" / "node.yaml").touch()
    (shipped / "performance-config.yaml").write_text(SHIPPED)
    return source


def installed(tmp_path: Path, source: Path, lines: str) -> Installed:
    etcd = program(tmp_path / "etcd", f'echo "$$ $1" > "{tmp_path}/etcd-was"\nexec sleep 60')
    return Installed(STRUCTURED, program(tmp_path / "scheduler_perf", lines), source, etcd)


def test_a_turn_is_measured_from_the_announcement_to_the_last_binding(tmp_path: Path, source: Path) -> None:
    turn = run(installed(tmp_path, source, WORKS), 3, pods=2, nodes=1, first=False)

    assert (turn.way, turn.turn, turn.pods, turn.nodes) == ("structured v1.37.0", 3, 2, 1)
    assert 0 < turn.pods_per_second < 2  # two pods in two seconds; a busy machine may be late by one
    assert turn.own_pods_per_second == 3.2


def test_its_etcd_is_started_like_ours_and_does_not_outlive_it(tmp_path: Path, source: Path) -> None:
    run(installed(tmp_path, source, WORKS), 1, pods=2, nodes=1, first=False)

    pid, option = (tmp_path / "etcd-was").read_text().split()
    assert option == "--unsafe-no-fsync"
    for _ in range(100):  # killed, and on a busy machine not gone at once
        if identify(int(pid)) is None:
            break
        time.sleep(0.1)
    assert identify(int(pid)) is None


def test_where_it_fails_its_last_words_are_shown(tmp_path: Path, source: Path) -> None:
    fails = installed(tmp_path, source, "echo start\necho 'panic: no API server'\nexit 2")

    told = "structured v1.37.0 ended with 2; its last words:\nstart\npanic: no API server"
    with pytest.raises(RuntimeError, match=f"^{re.escape(told)}$"):
        run(fails, 1, pods=2, nodes=1, first=False)


def test_where_it_ends_without_creating_pods_that_is_an_error_too(tmp_path: Path, source: Path) -> None:
    with pytest.raises(RuntimeError, match=r"ended with 0; its last words:\nPASS$"):
        run(installed(tmp_path, source, "echo PASS"), 1, pods=2, nodes=1, first=False)
