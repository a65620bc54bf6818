"""What the chart renders for each platform: a real API server takes it."""

from typing import Any

import pytest
import yaml
from tests.cluster import prometheus_operator
from tests.cluster.helm import CHART
from tests.cluster.starting import DEPLOY

from parley_devcluster import Cluster, manifests

pytestmark = pytest.mark.cluster

VARIANTS = sorted((CHART / "ci").glob("*-values.yaml"))

OF_OTHERS = {
    ("cert-manager.io", "v1"): ("Issuer", "Certificate"),
}
"""Kinds that a cluster has if cert-manager is there. Their schemas are not here."""


def stand_in(group: str, version: str, kind: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
            ],
        },
    }


@pytest.fixture(scope="module")
def with_others(installed: Cluster) -> Cluster:
    """The cluster, with the kinds of others that Parley's objects may be of."""
    made = [stand_in(*place, kind) for place, kinds in OF_OTHERS.items() for kind in kinds]
    made += prometheus_operator.crds("podmonitors")
    installed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(made))
    names = [f"crd/{it['metadata']['name']}" for it in made]
    installed.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    installed.kubectl("get", "issuers,certificates,podmonitors", "--all-namespaces")
    return installed


def values(variant: str) -> dict[str, Any]:
    given = yaml.safe_load((CHART / "ci" / f"{variant}-values.yaml").read_text())
    return dict(given)


GIVEN = {
    **{path.stem.removesuffix("-values"): {} for path in VARIANTS},
    "default-sidecar": {"secondScheduler": {"enabled": True, "mode": "Sidecar"}},
}


@pytest.mark.parametrize("variant", GIVEN)
def test_the_api_server_takes_every_variant(with_others: Cluster, variant: str) -> None:
    rendered = manifests.template(DEPLOY, {**values(variant.removesuffix("-sidecar")), **GIVEN[variant]})
    wanted = [it for it in yaml.safe_load_all(rendered) if it]

    told = with_others.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"), stdin=rendered
    )

    assert told.count("(server dry run)") == len(wanted) > 50
