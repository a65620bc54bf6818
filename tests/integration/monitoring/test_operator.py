"""The Prometheus operator's kinds take what deploy/monitoring and the chart have, and know all its fields."""

from pathlib import Path

import pytest
import yaml
from tests.cluster.kinds_of_others import PROMETHEUS_OPERATOR
from tests.cluster.starting import DEPLOY

from parley_devcluster import Cluster, ClusterError, manifests

pytestmark = pytest.mark.cluster

STRICTLY = ("apply", "--server-side", "--validate=strict")


@pytest.fixture(scope="module")
def cluster(installed: Cluster) -> Cluster:
    """A cluster that has the operator's kinds."""
    crds = PROMETHEUS_OPERATOR.crds("podmonitors", "prometheusrules")
    names = [crd["metadata"]["name"] for crd in crds]
    installed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(crds))
    installed.kubectl("wait", "--for=condition=Established", "--timeout=60s", *(f"crd/{name}" for name in names))
    installed.kubectl("get", ",".join(names), "--all-namespaces")
    return installed


def test_it_takes_the_folder(cluster: Cluster) -> None:
    applied = cluster.kubectl(*STRICTLY, "-k", str(DEPLOY / "monitoring"))

    assert sorted(line.split()[0] for line in applied.splitlines()) == [
        "configmap/parley-dashboard",
        "podmonitor.monitoring.coreos.com/parley-controller",
        "podmonitor.monitoring.coreos.com/parley-kubelet",
        "prometheusrule.monitoring.coreos.com/parley",
    ]
    stored = yaml.safe_load(cluster.kubectl("get", "prometheusrule/parley", "-n", "parley-system", "-o", "yaml"))
    written = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())
    assert stored["spec"] == written["spec"]


def test_it_takes_the_charts_monitors(cluster: Cluster) -> None:
    values = {"metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}}
    rendered = [it for it in yaml.safe_load_all(manifests.template(DEPLOY, values)) if it]
    monitors = [it for it in rendered if it["kind"] == "PodMonitor"]

    applied = cluster.kubectl(*STRICTLY, "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(monitors))

    assert applied.count("podmonitor.monitoring.coreos.com/") == len(monitors) == 2


@pytest.mark.parametrize(
    ("file", "field", "wrong"),
    [
        ("pod-monitors.yaml", "interval", "intervall"),
        ("pod-monitors.yaml", "podMetricsEndpoints", "endpoints"),
        ("alerts.yaml", "expr", "expression"),
        ("alerts.yaml", "annotations", "annotation"),
    ],
)
def test_a_field_that_the_operator_does_not_know_is_refused(
    cluster: Cluster, tmp_path: Path, file: str, field: str, wrong: str
) -> None:
    text = (DEPLOY / "monitoring" / file).read_text()
    assert f"{field}:" in text
    (tmp_path / file).write_text(text.replace(f"{field}:", f"{wrong}:"))

    with pytest.raises(ClusterError, match=rf"\b{wrong}: field not declared in schema"):
        cluster.kubectl(*STRICTLY, "--dry-run=server", "-n", "parley-system", "-f", str(tmp_path / file))
