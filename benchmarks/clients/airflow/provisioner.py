"""local-path-provisioner: ReadWriteOnce volumes in directories of nodes, for clusters without a storage system.

It is built from its Go module and runs as a process, with the objects that its own repository ships: the storage
class, the account and its rights, the scripts and the helper pod that runs them. Changed are the paths, for both
nodes are this machine, and the helper's image, for there is no registry.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from parley_devcluster import Cluster
from parley_devcluster.binaries import cache_directory
from parley_devcluster.gobuild import build, sources
from parley_devcluster.images import BUSYBOX
from parley_devcluster.versions import local_path_provisioner

NAME = "local-path-provisioner"
NAMESPACE = "local-path-storage"
HELPER = "helper-pod-"
"""How the names of its pods begin, which make and remove the directories."""

_ACCOUNT = "local-path-provisioner-service-account"
_SHIPPED = "deploy/local-path-storage.yaml"


def run(cluster: Cluster, volumes: Mapping[str, Path]) -> None:
    """Install it and start it; `volumes` is the folder that has each node's volumes."""
    module = local_path_provisioner()
    build(cache_directory(), [module], [NAME])
    shipped = (sources(module.path, module.version) / _SHIPPED).read_text()
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=_adapted(shipped, volumes))
    account = cluster.kubeconfig_for_service_account(NAMESPACE, _ACCOUNT)
    program = cache_directory() / module.folder / NAME
    options = (f"--kubeconfig={account}", f"--namespace={NAMESPACE}", f"--service-account-name={_ACCOUNT}")
    cluster.add_program(NAME, [str(program), "--debug", "start", *options])


def _adapted(shipped: str, volumes: Mapping[str, Path]) -> str:
    """All objects but the Deployment: the process that runs in its place reads the ConfigMap."""
    objects = [entry for entry in yaml.safe_load_all(shipped) if entry["kind"] != "Deployment"]
    settings = next(entry["data"] for entry in objects if entry["kind"] == "ConfigMap")
    paths = [{"node": node, "paths": [str(folder)]} for node, folder in volumes.items()]
    settings["config.json"] = json.dumps({"nodePathMap": paths})
    helper = yaml.safe_load(settings["helperPod.yaml"])
    helper["spec"]["containers"][0]["image"] = BUSYBOX
    settings["helperPod.yaml"] = yaml.safe_dump(helper)
    return yaml.safe_dump_all(objects)
