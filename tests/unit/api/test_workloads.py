"""The manifests of what runs: the programs take the options given, and the pods ask for no more than they need."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from examples.scratch.scratch_node import ScratchNode
from typer.core import TyperGroup

from parley.cli.logs import LogFormat
from parley.cli.main import app
from parley_kubelet.configuration import DEFAULT_DRIVER, load
from parley_kubelet.serving.driver_server import GRACE
from parley_kubelet.serving.self_check import LIMIT
from parley_kubelet.settings import parse_arguments

WORKLOADS = Path(__file__).parents[3] / "deploy" / "workloads"


def pod_spec(file: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((WORKLOADS / file).read_text())
    (workload,) = (it for it in documents if it["kind"] in ("Deployment", "DaemonSet"))
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def container(file: str) -> dict[str, Any]:
    (only,) = pod_spec(file)["containers"]
    return dict(only)


def environment(file: str) -> set[str]:
    return {variable["name"] for variable in container(file)["env"]}


def test_the_controller_takes_its_options() -> None:
    given = container("controller.yaml")
    program, subcommand = given["command"]
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)

    command = group.get_command(typer.Context(group), subcommand)
    assert command is not None
    context = command.make_context(subcommand, list(given["args"]))

    assert program == "parley"
    (port,) = given["ports"]
    assert context.params["metrics_port"] == port["containerPort"]
    assert context.params["log_format"] is LogFormat.JSON


def test_the_node_plugin_takes_its_options() -> None:
    given = container("node-plugin.yaml")

    settings = parse_arguments(given["args"], dict.fromkeys(environment("node-plugin.yaml"), "value"))

    assert given["command"] == ["parley-kubelet"]
    (port,) = given["ports"]
    assert settings.metrics_port == port["containerPort"]
    assert (settings.node, settings.instance) == ("value", "value")
    mounted = {mount["mountPath"] for mount in given["volumeMounts"]}
    own = settings.plugins / DEFAULT_DRIVER
    folders = {own, settings.registry, settings.cdi, settings.config.parent}
    assert {str(folder) for folder in folders} <= mounted


def test_a_node_plugin_that_is_stuck_is_started_anew_within_a_minute_and_calls_have_their_time_to_end() -> None:
    given = container("node-plugin.yaml")
    probe = given["livenessProbe"]
    (port,) = given["ports"]

    assert (probe["httpGet"]["path"], probe["httpGet"]["port"]) == ("/healthz", port["name"])
    detected = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    assert detected + probe["terminationGracePeriodSeconds"] <= 60
    assert probe["terminationGracePeriodSeconds"] > GRACE
    assert probe["timeoutSeconds"] > LIMIT


def test_an_update_waits_until_the_kubelet_has_registered_the_new_node_plugin() -> None:
    probe = container("node-plugin.yaml")["readinessProbe"]
    assert (probe["httpGet"]["path"], probe["httpGet"]["port"]) == ("/readyz", "http")


def test_dead_processes_that_a_health_check_leaves_are_not_the_node_plugins_children() -> None:
    """A check that is killed leaves a dead child to the namespace's first process: one at each interval."""
    assert pod_spec("node-plugin.yaml")["shareProcessNamespace"] is True


def test_the_node_plugin_sees_no_other_vendors_sockets() -> None:
    given = container("node-plugin.yaml")
    settings = parse_arguments(given["args"], dict.fromkeys(environment("node-plugin.yaml"), "value"))
    another = settings.plugins / "gpu.example.com" / "dra.sock"
    paths = [
        volume["hostPath"]["path"] for volume in pod_spec("node-plugin.yaml")["volumes"] if "hostPath" in volume
    ]

    assert [path for path in paths if another.is_relative_to(path)] == []
    assert str(settings.plugins / DEFAULT_DRIVER) in paths


def test_a_driver_with_hooks_gets_a_folder_of_its_own_as_the_docs_say() -> None:
    page = (WORKLOADS.parents[1] / "docs" / "install.md").read_text()
    (overlay,) = re.findall(r"```yaml\n(# kustomization.yaml.*?)```", page, flags=re.DOTALL)
    patches = {p["target"]["kind"]: yaml.safe_load(p["patch"]) for p in yaml.safe_load(overlay)["patches"]}
    values: defaultdict[str, list[Any]] = defaultdict(list)
    for step in patches["DaemonSet"]:
        values[step["path"].split("/")[-2]].append(step["value"])
    folder = f"/var/lib/kubelet/plugins/{ScratchNode.name}"

    assert folder in [mount["mountPath"] for mount in values["volumeMounts"]]
    assert folder in [volume["hostPath"]["path"] for volume in values["volumes"]]
    assert [step["value"]["resourceNames"] for step in patches["ClusterRole"]] == [[ScratchNode.name]]


def test_the_devices_file_can_be_read() -> None:
    assert load(WORKLOADS / "devices.yaml").devices == ()


def test_every_volume_is_mounted() -> None:
    volumes = {volume["name"] for volume in pod_spec("node-plugin.yaml")["volumes"]}

    assert volumes == {mount["name"] for mount in container("node-plugin.yaml")["volumeMounts"]}


@pytest.mark.parametrize("file", ["controller.yaml", "node-plugin.yaml"])
def test_no_container_has_privileges(file: str) -> None:
    security = container(file)["securityContext"]

    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod_spec(file)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_who_may_connect_is_limited_for_each_program() -> None:
    policies = list(yaml.safe_load_all((WORKLOADS / "network-policy.yaml").read_text()))
    programs = {
        document["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]
        for file in ("controller.yaml", "node-plugin.yaml")
        for document in yaml.safe_load_all((WORKLOADS / file).read_text())
        if document["kind"] in ("Deployment", "DaemonSet")
    }

    assert {
        policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for policy in policies
    } == programs
    assert all(policy["spec"]["policyTypes"] == ["Ingress"] for policy in policies)
    named = {port["port"] for policy in policies for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert named <= {port["name"] for port in container("controller.yaml")["ports"]}
