"""Parley as deploy/ installs it: controller, second scheduler and node plugin in containers, on one real node.

What differs from a user's cluster: images without a registry, the folder of the node's kubelet, and a stand-in for
kube-proxy, so that pods reach the API server by the address of its Service.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster import forward, image
from tests.cluster.starting import DEPLOY

from parley.devcluster import Cluster
from parley.devcluster.images import archive

_SERVICE = "10.96.0.1"
_PARLEY, _SCHEDULER = "parley.dev/parley", "parley.dev/kube-scheduler"

_OVERLAY = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{deployed}]
images:
- {{name: parley, newName: {parley}}}
- {{name: registry.k8s.io/kube-scheduler, newName: {scheduler}, newTag: dev}}
configMapGenerator:
- {{name: parley-devices, namespace: parley-system, behavior: replace, files: [devices.yaml]}}
patches:
- target: {{kind: DaemonSet, name: parley-kubelet}}
  patch: |
    - {{op: add, path: /spec/template/spec/containers/0/args/-, value: --plugins-dir=/var/lib/kubelet/plugins}}
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --plugins-registry-dir=/var/lib/kubelet/plugins_registry
"""


def deploy(cluster: Cluster, folder: str, devices: str, scratch: Path) -> None:
    """Apply `deploy/<folder>` in a cluster of one real node and with service accounts; returns at once.

    `devices` is the node plugin's configuration, `scratch` an empty folder.
    """
    (node,) = cluster.nodes
    _connect(cluster)
    images = [
        image.parley_image(f"{_PARLEY}:dev", scratch / "venv"),
        image.program_image(f"{_SCHEDULER}:dev", cluster.directory / "bin" / "kube-scheduler"),
    ]
    cluster.import_images(node.name, archive(scratch / "images.tar", images))
    (scratch / "devices.yaml").write_text(devices)
    deployed = os.path.relpath(DEPLOY / folder, scratch.resolve())
    overlay = _OVERLAY.format(deployed=deployed, parley=_PARLEY, scheduler=_SCHEDULER)
    (scratch / "kustomization.yaml").write_text(overlay)
    manifests = cluster.kubectl("kustomize", str(scratch))
    for path, ours in {
        "/var/lib/kubelet": node.kubelet_dir,
        " path: /var/run/cdi": f" path: {node.cdi_dir}",
    }.items():
        assert path in manifests
        manifests = manifests.replace(path, str(ours))
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)


def _connect(cluster: Cluster) -> None:
    """The Service's address is the bridge's, and goes with it."""
    (node,) = cluster.nodes
    subprocess.run(["ip", "address", "add", f"{_SERVICE}/32", "dev", node.scope], check=True)
    server = cluster.server.removeprefix("https://")
    cluster.add_program("service", [sys.executable, str(forward.__file__), f"{_SERVICE}:443", server])


def logs(cluster: Cluster, namespace: str) -> str:
    """All that the containers of the namespace have said, those that are gone included."""
    (node,) = cluster.nodes
    return "".join(file.read_text() for file in node.pod_logs_dir.glob(f"{namespace}_*/*/*.log"))
