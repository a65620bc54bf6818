"""Parley as deploy/ installs it: controller, second scheduler and node plugin in containers, on real nodes.

What differs from a user's cluster: images without a registry, the folder of the node's kubelet, and stand-ins for
kube-proxy and DNS, so that pods reach the API server and the extender by their Services.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import forward, image
from tests.cluster.starting import DEPLOY, directory

from parley_devcluster import Cluster, NodeOptions
from parley_devcluster.images import archive, program_image
from parley_devcluster.parley import NAMESPACE

NODE = "n"
"""Short, as is its folder: the sockets of a plugin in a pod have the pod's UID in their names."""

_ADDRESS = "10.96.0.1"
_EXTENDER = "parley-extender"
_PARLEY, _SCHEDULER = "parley.dev/parley", "parley.dev/kube-scheduler"

_OVERLAY = f"""\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
images:
- {{name: parley, newName: {_PARLEY}}}
- {{name: registry.k8s.io/kube-scheduler, newName: {_SCHEDULER}, newTag: dev}}
configMapGenerator:
- {{name: parley-devices, namespace: {NAMESPACE}, behavior: replace, files: [devices.yaml]}}
patches:
- target: {{kind: DaemonSet, name: parley-kubelet}}
  patch: |
    - {{op: add, path: /spec/template/spec/containers/0/args/-, value: --plugins-dir=/var/lib/kubelet/plugins}}
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --plugins-registry-dir=/var/lib/kubelet/plugins_registry
- target: {{kind: Deployment, name: parley-scheduler}}
  patch: |
    - op: add
      path: /spec/template/spec/hostAliases
      value: [{{ip: {_ADDRESS}, hostnames: [{_EXTENDER}.{NAMESPACE}.svc]}}]
"""


@contextmanager
def machine(
    scratch: Path, nodes: Sequence[str] = (NODE,), parley: str = f"{_PARLEY}:dev"
) -> Generator[Cluster, None, None]:
    """A cluster of real nodes, of one if no others are named, that have the images; `scratch` is an empty folder.

    `parley` is what Parley's image is called there.
    """
    with (
        directory(prefix="p") as place,
        Cluster.start(place, nodes=[NodeOptions(name) for name in nodes], service_accounts=True) as it,
    ):
        images = [
            image.parley_image(parley, scratch / "venv"),
            program_image(f"{_SCHEDULER}:dev", it.directory / "bin" / "kube-scheduler"),
        ]
        file = archive(scratch / "images.tar", images)
        for name in nodes:
            it.import_images(name, file)
        _serve(it, nodes[0])
        yield it


def _serve(cluster: Cluster, node: str) -> None:
    """The two Services, at one address: it is that of the node's bridge, and goes with it."""
    subprocess.run(["ip", "address", "add", f"{_ADDRESS}/32", "dev", cluster.node(node).scope], check=True)
    program = [sys.executable, str(forward.__file__)]
    server, _, port = cluster.server.removeprefix("https://").rpartition(":")
    cluster.add_program("service-kubernetes", [*program, f"{_ADDRESS}:443", port, "echo", server])
    ready = "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}"
    slices = ["endpointslices", "-n", NAMESPACE, "-l", f"kubernetes.io/service-name={_EXTENDER}", "-o", ready]
    kubectl = [str(cluster.directory / "bin" / "kubectl"), "--kubeconfig", str(cluster.kubeconfig)]
    cluster.add_program(f"service-{_EXTENDER}", [*program, f"{_ADDRESS}:8443", "8443", *kubectl, "get", *slices])


def manifests(cluster: Cluster, folder: str, devices: str, scratch: Path) -> str:
    """Those of `deploy/<folder>` for a cluster of `machine`, with that configuration of the node plugin."""
    node = cluster.node(NODE)
    (scratch / "devices.yaml").write_text(devices)
    deployed = os.path.relpath(DEPLOY / folder, scratch.resolve())
    (scratch / "kustomization.yaml").write_text(_OVERLAY % deployed)
    made = cluster.kubectl("kustomize", str(scratch))
    for path, ours in {
        "/var/lib/kubelet": node.kubelet_dir,
        " path: /var/run/cdi": f" path: {node.cdi_dir}",
    }.items():
        assert path in made
        made = made.replace(path, str(ours))
    return made


def logs(cluster: Cluster) -> str:
    """All that Parley's containers have said, those that are gone included."""
    folders = [node.pod_logs_dir for node in cluster.nodes]
    return "".join(file.read_text() for folder in folders for file in folder.glob(f"{NAMESPACE}_*/*/*.log"))
