"""The Helm chart: deploy/ is what it renders, its values are checked, what it renders agrees with the programs."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.charts import CHART, DEPLOY, objects, pod_of

from parley.cli.permissions import permissions
from parley.doctor import installed
from parley.doctor.comparing import missing_grants
from parley.drivers import BUILT_IN
from parley.kube.lease import LeaseTimes
from parley_devcluster import manifests
from parley_kubelet.configuration import load
from parley_kubelet.driver.workspace_handle import WorkspaceSettings
from parley_kubelet.settings import parse_arguments

VARIANTS = sorted((CHART / "ci").glob("*-values.yaml"))


def test_deploy_is_what_the_chart_renders() -> None:
    wanted = manifests.rendered(DEPLOY)

    differing = [str(path) for path, text in wanted.items() if (DEPLOY / path).read_text() != text]

    assert differing == [], "run `make manifests`"


def test_nothing_else_is_in_the_rendered_folders() -> None:
    wanted = set(manifests.rendered(DEPLOY))
    there = {
        path.relative_to(DEPLOY) for folder in manifests.FOLDERS for path in (DEPLOY / folder.path).glob("*.yaml")
    }

    assert {path for path in there - wanted if path.name != "kustomization.yaml"} == set()


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda path: path.stem.removesuffix("-values"))
def test_every_variant_passes_lint(helm: Path, variant: Path) -> None:
    done = subprocess.run(
        [str(helm), "lint", "--strict", str(CHART), "--values", str(variant)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            "nodePlugin.kubeletFolder=var/lib",
            "at '/nodePlugin/kubeletFolder': 'var/lib' does not match pattern '^/'",
        ),
        ("image.tagg=1", "at '/image': additional properties 'tagg' not allowed"),
        ("controller.replicas=-1", "at '/controller/replicas': minimum: got -1, want 0"),
        ("secondScheduler.mode=Sidecart", "at '/secondScheduler/mode': value must be one of 'Sidecar', 'Service'"),
        (
            "bridge.runs[0].label=a'b",
            "at '/bridge/runs/0/label': 'a\\'b' does not match pattern",
        ),
        ("drivers.standalone[0].load=a:B", "at '/drivers/standalone/0': missing property 'name'"),
        ("drivers.standalone[0].name=a.b", "at '/drivers/standalone/0': missing property 'load'"),
        (
            "drivers.standalone[0].name=a.b,drivers.standalone[0].load=a:B,drivers.standalone[0].command={/go}",
            "at '/drivers/standalone/0/command': maxItems: got 1, want 0",
        ),
        (
            "image.digest=sha256:1",
            "at '/image/digest': 'sha256:1' does not match pattern '^(sha256:[0-9a-f]{64})?$'",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_field_and_reason(helm: Path, wrong: str, told: str) -> None:
    done = subprocess.run(
        [str(helm), "lint", str(CHART), "--set", wrong], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert told in done.stdout


def places(node: Any, at: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Of all values in a mapping, but for what is the user's from there on."""
    if not isinstance(node, dict) or not node or at[-1:] in (("resources",), ("metricsFrom",)):
        return {at}
    return {place for key, inner in node.items() for place in places(inner, (*at, key))}


def test_every_value_has_its_place_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    for place in places(yaml.safe_load((CHART / "values.yaml").read_text())):
        node = schema
        for key in place:
            node = node["properties"][key]


def test_a_platform_gets_what_it_needs_and_the_default_none_of_it() -> None:
    default = objects({})
    quota = objects(CHART / "ci" / "gke-values.yaml")["ResourceQuota", "parley-priority-classes"]
    openshift = objects(CHART / "ci" / "openshift-values.yaml")
    microk8s = pod_of(objects(CHART / "ci" / "microk8s-values.yaml")["DaemonSet", "parley-kubelet"])

    assert not {kind for kind, _ in default} & {"ResourceQuota", "PodMonitor", "Certificate", "Namespace"}
    (term,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert term["values"] == ["system-cluster-critical", "system-node-critical"]
    assert openshift["RoleBinding", "parley-kubelet-scc"]["roleRef"]["name"] == "system:openshift:scc:privileged"
    assert openshift["RoleBinding", "parley-scc"]["roleRef"]["name"] == "system:openshift:scc:nonroot-v2"
    assert pod_of(openshift["DaemonSet", "parley-kubelet"])["securityContext"]["seLinuxOptions"] == {
        "type": "spc_t"
    }
    paths = {volume["hostPath"]["path"] for volume in microk8s["volumes"] if "hostPath" in volume}
    assert {path for path in paths if path.startswith("/var/lib/kubelet")} == set()
    assert "/var/snap/microk8s/common/var/lib/kubelet/plugins_registry" in paths


def test_the_node_plugin_takes_what_any_values_make_of_it(tmp_path: Path) -> None:
    made = objects(CHART / "ci" / "everything-values.yaml")
    for pool in ("gpus", "scratch"):
        spec = pod_of(made["DaemonSet", f"parley-kubelet-{pool}"])
        (container,) = spec["containers"]
        settings = parse_arguments(container["args"], {it["name"]: "value" for it in container["env"]})
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}

        assert spec["nodeSelector"] == {"pool": pool}
        assert settings.drivers == ("devices", "scratch_node:ScratchNode", "workspaces")
        assert {
            str(settings.registry),
            str(settings.cdi),
            str(settings.plugins / "scratch.example.com"),
            str(settings.plugins / "workspace.parley.dev"),
            str(WorkspaceSettings().root),
        } <= mounted
        assert {mount["name"] for mount in container["volumeMounts"]} == {it["name"] for it in spec["volumes"]}
        (tmp_path / "devices.yaml").write_text(made["ConfigMap", f"parley-devices-{pool}"]["data"]["devices.yaml"])
        assert [device.name for device in load(tmp_path / "devices.yaml").devices] == (
            ["gpu-0"] if pool == "gpus" else []
        )


def test_workspaces_may_be_among_the_hooks_and_drivers_that_are_named() -> None:
    named = {"hooks": ["devices", "workspaces"], "driverNames": ["device.parley.dev", "workspace.parley.dev"]}
    made = objects({"nodePlugin": {**named, "workspaces": {"enabled": True}}})["DaemonSet", "parley-kubelet"]
    (container,) = pod_of(made)["containers"]

    for names in (
        [volume["name"] for volume in pod_of(made)["volumes"]],
        [mount["mountPath"] for mount in container["volumeMounts"]],
        container["args"],
    ):
        assert len(names) == len(set(names)), names


def test_pools_have_nothing_in_common_but_account_and_network_policy() -> None:
    made = objects(CHART / "ci" / "everything-values.yaml")
    selectors = [
        made["DaemonSet", f"parley-kubelet-{pool}"]["spec"]["selector"]["matchLabels"]
        for pool in ("gpus", "scratch")
    ]
    policy = made["NetworkPolicy", "parley-kubelet"]["spec"]["podSelector"]["matchLabels"]

    assert selectors[0] != selectors[1]
    assert all(policy.items() <= selector.items() for selector in selectors)


def test_a_standalone_driver_has_the_account_that_the_command_prints() -> None:
    made = objects(CHART / "ci" / "everything-values.yaml")

    for wanted in permissions("tokens.parley.dev", manifests.NAMESPACE):
        assert made[wanted["kind"], wanted["metadata"]["name"]] == wanted


def test_who_may_connect_to_a_standalone_driver_is_limited_where_it_is_known_what_it_serves() -> None:
    made = objects(CHART / "ci" / "everything-values.yaml")
    policy = made["NetworkPolicy", "parley-driver-tokens.parley.dev"]["spec"]
    deployment = made["Deployment", "parley-driver-tokens.parley.dev"]["spec"]

    assert policy["podSelector"] == deployment["selector"]
    assert [port for rule in policy["ingress"] for port in rule["ports"]] == [{"port": "http"}]
    assert ("NetworkPolicy", "parley-driver-go.example.com") not in made


def test_drivers_of_ones_own_in_the_controller_may_have_status_devices_written() -> None:
    made = objects(CHART / "ci" / "everything-values.yaml")
    (container,) = pod_of(made["Deployment", "parley-controller"])["containers"]
    (rule,) = (
        it
        for it in made["ClusterRole", "parley-controller"]["rules"]
        if it["resources"] == ["resourceclaims/driver"]
    )

    own = sorted(driver.name for driver in BUILT_IN.values())
    assert rule["resourceNames"] == [*own, "mine.example.com"]
    assert {"--driver=device", "--driver=mine:Mine"} <= set(container["args"])


@pytest.mark.parametrize(
    "values",
    [
        {"nodePlugin": {"hooks": ["scratch_node:ScratchNode"], "driverNames": ["scratch.example.com"]}},
        {"nodePlugin": {"enabled": False}},
        {"drivers": {"embedded": [{"load": "mine:Mine", "name": "mine.example.com"}]}},
        yaml.safe_load((CHART / "ci" / "everything-values.yaml").read_text()),
    ],
    ids=["nodes without devices", "no node plugin", "a driver of one's own alone", "everything"],
)
def test_roles_grant_what_the_doctor_expects_whatever_the_values(values: dict[str, Any]) -> None:
    made = objects(values)

    for kind in ("ClusterRole", "Role"):
        for name, expected in installed.of_kind(kind).items():
            assert missing_grants(expected, made[kind, name]) == [], name


def test_pods_may_be_evicted_only_where_that_is_chosen() -> None:
    def may_evict(values: dict[str, Any]) -> bool:
        rules = objects(values)["ClusterRole", "parley-controller"]["rules"]
        return {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]} in rules

    assert not may_evict({})
    assert may_evict({"preemption": {"enabled": True}})


def test_reservation_pods_do_not_keep_a_scheduler_with_the_controllers_account_from_preempting() -> None:
    def restricted(**scheduler: Any) -> list[str]:
        made = objects({"reservationPods": {"enabled": True}, "secondScheduler": scheduler})
        (rule,) = made["ValidatingAdmissionPolicy", "reservation-pods.parley.dev"]["spec"]["matchConstraints"][
            "resourceRules"
        ]
        return list(rule["operations"])

    assert restricted(enabled=False) == restricted(enabled=True, mode="Service") == ["CREATE", "DELETE"]
    assert restricted(enabled=True, mode="Sidecar") == ["CREATE"]


def test_pods_are_changed_only_where_that_is_chosen() -> None:
    def changing(values: dict[str, Any]) -> list[str]:
        found = objects(values)
        assert (("ValidatingAdmissionPolicy", "size.bridge.parley.dev") in found) is bool(values)
        return sorted(name for kind, name in found if kind == "MutatingAdmissionPolicy")

    assert changing({}) == []
    assert changing({"bridge": {"enabled": True}}) == ["claims.bridge.parley.dev", "tekton.bridge.parley.dev"]
    runs = [{"name": "builds", "label": "example.com/run", "uidLabel": "example.com/run-uid"}]
    assert "builds.bridge.parley.dev" in changing({"bridge": {"enabled": True, "runs": runs}})


def test_what_parameters_are_read_from_is_granted_where_it_is_named_and_nowhere_by_default() -> None:
    named = {"parameters": {"namespaces": ["team"]}, "drivers": {"standalone": [{"name": "a.b", "load": "a:B"}]}}
    everywhere = {"parameters": {"allNamespaces": True, "resources": [{"apiGroup": "x.y", "resource": "sizes"}]}}
    name = "parley-parameters"

    assert not [it for it in objects({}) if it[1] == name]
    made = objects(named)
    assert made["ClusterRole", name]["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    ]
    assert made["RoleBinding", name]["metadata"]["namespace"] == "team"
    accounts = [subject["name"] for subject in made["RoleBinding", name]["subjects"]]
    assert accounts == ["parley-controller", "parley-driver-a.b"]
    made = objects(everywhere)
    assert made["ClusterRole", name]["rules"] == [{"apiGroups": ["x.y"], "resources": ["sizes"], "verbs": ["get"]}]
    assert [subject["name"] for subject in made["ClusterRoleBinding", name]["subjects"]] == ["parley-controller"]


def notes(helm: Path, *values: str) -> str:
    """What helm prints when the chart is installed."""
    given = [word for value in values for word in ("--set", value)]
    command = [str(helm), "install", "parley", str(CHART), "-n", "parley-system", "--dry-run=client", *given]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.partition("NOTES:\n")[2]


def test_what_the_notes_wait_for_comes_about(helm: Path) -> None:
    """Reservation pods never run, and the check of a removal that was refused has failed."""
    for values in ((), ("secondScheduler.enabled=true", "secondScheduler.mode=Service")):
        assert [line.strip() for line in notes(helm, *values).splitlines() if "kubectl wait" in line] == [
            "kubectl wait pods --for=condition=Ready "
            "-l 'app.kubernetes.io/name notin (parley-reservation, parley-uninstall-check)' --timeout=5m "
            "-n parley-system"
        ]


def test_a_digest_goes_before_the_tag_in_all_containers() -> None:
    made = objects(CHART / "ci" / "everything-values.yaml")
    images = {
        container["image"]
        for (kind, _), it in made.items()
        if kind in ("Deployment", "DaemonSet", "Job")
        for container in pod_of(it)["containers"]
    }

    assert {image.partition("@")[2][:10] for image in images if "/parley" in image} == {"sha256:012"}
    assert len(images) == 3


def test_certificates_of_the_path_are_made_where_they_are_mounted() -> None:
    made = objects(CHART / "ci" / "everything-values.yaml")
    for workload, certificate in (("parley-controller", "server"), ("parley-scheduler", "client")):
        secrets = [
            it["secret"]["secretName"] for it in pod_of(made["Deployment", workload])["volumes"] if "secret" in it
        ]
        assert secrets == [made["Certificate", f"parley-extender-{certificate}"]["spec"]["secretName"]]
    settings = yaml.safe_load(made["ConfigMap", "parley-scheduler-configuration"]["data"]["scheduler.yaml"])
    (name,) = made["Certificate", "parley-extender-server"]["spec"]["dnsNames"]
    assert {entry["urlPrefix"] for entry in settings["extenders"]} == {f"https://{name}:8443"}


@pytest.mark.parametrize("seconds", [5, 15, 60, 300, 3600])
def test_a_controller_that_is_stopped_has_the_time_to_release_its_lease(seconds: int) -> None:
    made = objects({"controller": {"options": {"leaseDuration": seconds}}})
    grace = pod_of(made["Deployment", "parley-controller"]).get("terminationGracePeriodSeconds", 30)

    # until a write that was under way cannot happen any more, and then the one that releases
    assert grace >= 2 * LeaseTimes.lasting(seconds).write_seconds + 5


def test_the_chart_has_the_projects_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (DEPLOY.parent / "pyproject.toml").read_text()

    labels = objects({})["Deployment", "parley-controller"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == chart["appVersion"], "parley doctor compares it"
    assert [chart["version"], chart["appVersion"]] == re.findall(r'(?m)^version = "(.*)"', project) * 2
