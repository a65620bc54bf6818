"""`parley uninstall` with the accounts of the chart's hooks, under the policies that guard finalizers."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.cluster.starting import DEPLOY

from parley.api.exits import Exit
from parley.api.names import DEVICE_CLASS, FINALIZER, MIRROR_LABEL, driver_finalizer
from parley_devcluster import Cluster, manifests

pytestmark = pytest.mark.cluster

TEAM = "leaving"
CHECK, RELEASE = "parley-uninstall-check", "parley-uninstall-release"
OURS = [FINALIZER, driver_finalizer("tokens.parley.dev")]
REQUEST = {"name": "exclusive", "exactly": {"deviceClassName": DEVICE_CLASS}}
LEFT = [
    {
        "apiVersion": "parley.dev/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": TEAM, "finalizers": OURS},
        "spec": {"resourceClassName": "gpu"},
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "mine",
            "namespace": TEAM,
            "finalizers": [FINALIZER],
            "labels": {MIRROR_LABEL: "named"},
        },
        "spec": {"devices": {"requests": [REQUEST]}},
    },
]


@pytest.fixture(scope="module")
def accounts(workplace: Cluster) -> Iterator[dict[str, Path]]:
    """Kubeconfigs of the accounts that the hooks bring, which may do what the chart grants them."""
    made = [it for it in yaml.safe_load_all(manifests.template(DEPLOY, {})) if it]
    granted = [it for it in made if it["metadata"]["name"] in (CHECK, RELEASE) and it["kind"] != "Job"]
    text = yaml.safe_dump_all(granted)
    workplace.kubectl("apply", "-f", "-", stdin=text)
    yield {name: workplace.kubeconfig_for_service_account(manifests.NAMESPACE, name) for name in (CHECK, RELEASE)}
    workplace.kubectl("delete", "-f", "-", stdin=text)


@pytest.fixture
def left(workplace: Cluster) -> Cluster:
    """A namespace that is being deleted, in which a claim and its mirror have Parley's finalizers."""
    workplace.kubectl("create", "namespace", TEAM)
    workplace.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(LEFT))
    workplace.kubectl("delete", "namespace", TEAM, "--wait=false")
    return workplace


def uninstall(account: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [
        str(Path(sys.executable).with_name("parley")),
        "uninstall",
        *arguments,
        "--kubeconfig",
        str(account),
    ]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_the_first_may_look_and_only_the_last_may_release(left: Cluster, accounts: dict[str, Path]) -> None:
    checked = uninstall(accounts[CHECK], "--check")
    refused = uninstall(accounts[CHECK], "--release-finalizers")

    assert (checked.returncode, checked.stdout) == (0, "No claim is in use.\n"), checked.stderr
    assert refused.returncode == Exit.FORBIDDEN
    assert "ask an administrator for that right" in refused.stderr

    released = uninstall(accounts[RELEASE], "--release-finalizers", "--namespace", TEAM)

    assert released.returncode == 0, released.stderr
    # whether the namespace's controller has come as far as the built-in claim is nobody's concern
    lines = [line.removesuffix(" and deleted") for line in released.stdout.splitlines()]
    assert lines == [
        f"ResourceClaim.parley.dev {TEAM}/mine: removed {', '.join(OURS)}",
        f"ResourceClaim.resource.k8s.io {TEAM}/mine: removed {FINALIZER}",
        "2 objects changed; no object has a finalizer of Parley any more.",
    ]
    left.kubectl("wait", "--for=delete", f"namespace/{TEAM}", "--timeout=60s")
