"""What scheduler_perf is told to run: its own test case, with the numbers of our workload."""

import subprocess
from pathlib import Path

import pytest
import yaml
from benchmarks import peers
from benchmarks.peers import CLASSIC, PEERS, STRUCTURED
from benchmarks.workloads import WORKLOADS

SHIPPED_STRUCTURED = """
- name: PublishResourceSlices
  workloadTemplate: []
  workloads: [{name: 500nodes, params: {nodesWithDRA: 500}}]
- name: SchedulingWithResourceClaimTemplate
  featureGates:
    DynamicResourceAllocation: true
  workloadTemplate:
  - opcode: createNodes
    nodeTemplatePath: templates/node-with-dra-test-driver.yaml
    countParam: $nodesWithDRA
  - opcode: createAny
    templatePath: templates/resourceslice-basic-devices.yaml
    countParam: $nodesWithDRA
    templateParams:
      numPCIRoots: $numPCIRoots|2
      numDevices: 10
  - opcode: createPods
    namespace: test
    countParam: $measurePods
    collectMetrics: true
  workloads:
  - name: fast
    params: {nodesWithDRA: 1, nodesWithoutDRA: 1, initClaims: 0, measurePods: 10, steadyState: false, duration: 0s}
  - name: 2000pods_200nodes
    params:
      nodesWithDRA: 200
      nodesWithoutDRA: 0
      initClaims: 1000
      measurePods: 1000
      steadyState: false
      duration: 0s
"""

SHIPPED_CLASSIC = """
- name: SchedulingWithResourceClaimTemplate
  featureGates:
    DRAControlPlaneController: true
  workloadTemplate:
  - opcode: createResourceDriver
    maxClaimsPerNodeParam: $maxClaimsPerNode
  workloads:
  - name: 2000pods_100nodes
    labels: [performance, fast]
    params: {nodesWithDRA: 100, nodesWithoutDRA: 0, initPods: 1000, measurePods: 1000, maxClaimsPerNode: 20}
"""


def test_the_structured_peer_runs_its_own_test_case_with_our_pods_nodes_and_devices() -> None:
    (case,) = yaml.safe_load(peers.configuration(STRUCTURED, SHIPPED_STRUCTURED, pods=400, nodes=50))

    assert case["name"] == "SchedulingWithResourceClaimTemplate"
    assert case["featureGates"] == {"DynamicResourceAllocation": True}
    nodes, slices, pods = case["workloadTemplate"]
    assert slices["templateParams"] == {"numPCIRoots": "$numPCIRoots|2", "numDevices": 48}
    shipped = yaml.safe_load(SHIPPED_STRUCTURED)[1]["workloadTemplate"]
    assert [nodes, pods] == [shipped[0], shipped[2]]
    assert case["workloads"] == [
        {
            "name": "400pods_50nodes",
            "labels": ["performance"],
            "params": {
                "nodesWithDRA": 50,
                "nodesWithoutDRA": 0,
                "initClaims": 0,
                "measurePods": 400,
                "steadyState": False,
                "duration": "0s",
            },
        }
    ]


def test_the_classic_peer_gets_parameters_that_it_knows_and_no_others() -> None:
    (case,) = yaml.safe_load(peers.configuration(CLASSIC, SHIPPED_CLASSIC, pods=1000, nodes=100))

    (workload,) = case["workloads"]
    assert workload["params"] == {
        "nodesWithDRA": 100,
        "nodesWithoutDRA": 0,
        "initPods": 0,
        "measurePods": 1000,
        "maxClaimsPerNode": 48,
    }


def test_a_configuration_without_the_test_case_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^performance-config.yaml of structured v1.37.0 has no 'Scheduling"):
        peers.configuration(STRUCTURED, "[]", pods=1, nodes=1)


def test_the_command_runs_the_benchmark_once_and_no_test() -> None:
    assert peers.command(Path("/cache/scheduler_perf"), Path("/run/results")) == [
        "/cache/scheduler_perf",
        "-test.run=^$",
        "-test.bench=^BenchmarkPerfScheduling$",
        "-test.benchtime=1x",
        "-test.timeout=30m",
        "-test.v=true",
        "-perf-scheduling-label-filter=performance",
        "-data-items-dir=/run/results",
    ]


def test_a_peer_finds_its_module_and_our_etcd_and_takes_no_etcd_that_runs_already() -> None:
    base = {"PATH": "/usr/bin", "HOME": "/home/ada", "TZ": "Asia/Tokyo"}

    given = peers.environment(base, Path("/run/bin"), Path("/run"), Path("/home/ada/go/pkg/mod"))

    assert given["PATH"] == "/run/bin:/usr/bin"
    assert given["HOME"] == "/home/ada"
    assert given["TMPDIR"] == "/run"
    assert f"{given['TEST_SRCDIR']}/{given['TEST_WORKSPACE']}" == "/home/ada/go/pkg/mod"
    assert given["KUBE_INTEGRATION_ETCD_URL"] == "http://127.0.0.1:1"
    assert given["TZ"] == "UTC"


def test_etcd_waits_for_the_disk_as_little_as_ours_and_tells_its_process_id(tmp_path: Path) -> None:
    etcd, script, pid_file = tmp_path / "real etcd", tmp_path / "etcd", tmp_path / "etcd.pid"
    etcd.write_text('#!/bin/sh\necho "$$" "$@"\n')
    script.write_text(peers.etcd_script(etcd, pid_file))
    for program in (etcd, script):
        program.chmod(0o755)

    done = subprocess.run([script, "--data-dir", "a b"], capture_output=True, text=True, check=True)

    assert done.stdout.split(maxsplit=1) == [pid_file.read_text().strip(), "--unsafe-no-fsync --data-dir a b\n"]


def test_only_workloads_with_one_claim_a_pod_in_an_empty_cluster_have_a_peer() -> None:
    assert [workload.name for workload in WORKLOADS if peers.comparable(workload)] == [
        "claims1-100nodes",
        "standalone1-100nodes",
        "waiting-0",
        "extender-claims1",
        "extender-unpublished",
        "claims1-500nodes",
    ]


def test_each_peer_is_a_test_binary_of_a_pinned_release() -> None:
    modules = [peer.module for peer in PEERS]

    package = "k8s.io/kubernetes/test/integration/scheduler_perf"
    assert [(module.version, module.programs, module.tests) for module in modules] == [
        ("v1.37.0", (("scheduler_perf", f"{package}/dra"),), True),
        ("v1.31.0", (("scheduler_perf", package),), True),
    ]
