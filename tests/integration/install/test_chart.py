"""What the chart renders for each platform: a real API server takes it."""

from typing import Any

import pytest
import yaml
from tests.cluster.helm import CHART
from tests.cluster.kinds_of_others import CERT_MANAGER, PROMETHEUS_OPERATOR
from tests.cluster.starting import DEPLOY

from parley_devcluster import Cluster, ClusterError, manifests

pytestmark = pytest.mark.cluster

VARIANTS = sorted((CHART / "ci").glob("*-values.yaml"))


@pytest.fixture(scope="module")
def with_others(installed: Cluster) -> Cluster:
    """The cluster, with the kinds of others that Parley's objects may be of."""
    made = CERT_MANAGER.crds("issuers", "certificates") + PROMETHEUS_OPERATOR.crds("podmonitors")
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


@pytest.mark.parametrize(
    ("misspelt", "words"),
    [
        ({"dnsNames": "dnsName"}, r"\.spec\.dnsName: field not declared in schema"),
        ({"[server auth]": "[serving]"}, r'spec.usages\[0\]: Unsupported value: "serving"'),
        (
            {"secretName: parley-extender-ca": "secret: parley-extender-ca"},
            r"\.spec\.ca\.secret: field not declared in schema",
        ),
    ],
    ids=["field", "value", "issuer"],
)
def test_certificates_are_validated_by_cert_managers_own_schemas(
    with_others: Cluster, misspelt: dict[str, str], words: str
) -> None:
    rendered = manifests.template(DEPLOY, values("everything"))
    for right, wrong in misspelt.items():
        assert right in rendered
        rendered = rendered.replace(right, wrong)

    with pytest.raises(ClusterError, match=words):
        with_others.kubectl(
            *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"), stdin=rendered
        )
