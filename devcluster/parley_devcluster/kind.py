"""A cluster in containers, created by kind, from kind's published node image or from one that is built here.

The latter needs no registry (`kind_image`); its pod network is configured here too (`kind_network`).
`python -m parley_devcluster kind` builds that image in advance, because it takes time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from parley_devcluster import commands, kind_image, kind_network, machine, versions
from parley_devcluster.engine import ENGINES, Engine, find
from parley_devcluster.gobuild import say
from parley_devcluster.startup import ClusterError

NAME = "parley"
IMAGE = "PARLEY_KIND_IMAGE"
NODES = ("control-plane", "worker", "worker")

_RECORD = "kind-cluster"
_LIMIT = 900.0  # seconds, the download of the node image included
_READY = 180  # seconds until all nodes are ready


def create(
    program: Path, engine: Engine, directory: Path, image: str | None, nodes: Sequence[str] = NODES
) -> Path:
    """Create a cluster from that image, or from kind's default one, and return its kubeconfig in `directory`.

    Raises `ClusterError` with kind's output.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    kubeconfig, described = directory / "kubeconfig", directory / "kind.yaml"
    (directory / _RECORD).write_text(f"{program}\n{engine.name}\n")
    ours = image is not None and image.startswith(f"{kind_image.REPOSITORY}/")
    described.write_text(yaml.safe_dump(configuration(nodes, ours=ours, restrict=machine.lacks_sys_resource())))
    _allow_modules()
    _run(create_command(program, kubeconfig, described, image), engine)
    if ours:
        listed = engine.run("exec", f"{NAME}-control-plane", "kubectl", "get", "nodes", "--output=json", limit=30)
        kind_network.connect(engine, kind_network.nodes(listed))
    wait = ("wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={_READY}s")
    engine.run("exec", f"{NAME}-control-plane", "kubectl", *wait, limit=_READY + 30)
    return kubeconfig


def existing(directory: Path) -> Path | None:
    """The kubeconfig of the cluster that `create` recorded in the directory, if there is one."""
    files = (directory / _RECORD, directory / "kubeconfig")
    return files[1] if all(file.is_file() for file in files) else None


def engine_of(directory: Path) -> Engine:
    """The container engine of the recorded cluster; raises `ClusterError` if it does not answer."""
    name = (directory / _RECORD).read_text().split("\n")[1]
    engine = find(names=[name])
    if engine is None:
        raise ClusterError(f"{name}, which the cluster recorded in {directory} runs in, does not answer: start it")
    return engine


def delete(directory: Path) -> bool:
    """Delete the cluster that `create` recorded in the directory, even an incomplete one. Returns whether there
    was one."""
    if not (directory / _RECORD).is_file():
        return False
    program = (directory / _RECORD).read_text().split("\n")[0]
    _run([program, "delete", "cluster", "--name", NAME], engine_of(directory))
    for file in (directory / _RECORD, directory / "kubeconfig", directory / "kind.yaml"):
        file.unlink(missing_ok=True)
    return True


def nodes(engine: Engine) -> list[str]:
    """The names of the cluster's nodes, which are also the names of their containers."""
    label = f"label=io.x-k8s.kind.cluster={NAME}"
    return sorted(engine.run("ps", "--filter", label, "--format", "{{.Names}}").split())


def import_image(engine: Engine, image: str, into: Sequence[str], scratch: Path) -> None:
    """Import an image of the engine into those nodes; raises `EngineError`."""
    saved = scratch / "image.tar"
    engine.run("save", "--output", str(saved), image)
    import_archive(engine, saved, into)
    saved.unlink()


def import_archive(engine: Engine, archive: Path, into: Sequence[str]) -> None:
    """Import the images of an archive into those nodes; raises `EngineError`."""
    for node in into:
        command = ("exec", "--interactive", node, "ctr", "--namespace=k8s.io", "images", "import", "-")
        engine.run(*command, stdin=archive)


def create_command(program: Path, kubeconfig: Path, described: Path, image: str | None) -> list[str]:
    """The command line that creates the cluster; `image` is the node image, None for kind's default."""
    command = [str(program), "create", "cluster", "--name", NAME, "--config", str(described)]
    command += ["--kubeconfig", str(kubeconfig)]
    return [*command, "--image", image] if image else command


def configuration(nodes: Sequence[str], *, ours: bool, restrict: bool) -> dict[str, Any]:
    """kind's configuration of a cluster with nodes of those roles.

    `ours`: the node image is one of `kind_image`. `restrict`: OOM scores can't be lowered on this machine.
    Kubelets are configured to accept cgroup v1, which they refuse by default. CDI is enabled in containerd 2.
    """
    described: dict[str, Any] = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": role} for role in nodes],
        "kubeadmConfigPatches": [_patch("KubeletConfiguration", {"failCgroupV1": False})],
    }
    if restrict:
        patch = '[plugins."io.containerd.grpc.v1.cri"]\n  restrict_oom_score_adj = true\n'
        described["containerdConfigPatches"] = [patch]
    if ours:
        described["networking"] = {
            "disableDefaultCNI": True,
            "kubeProxyMode": "nftables",
            "podSubnet": kind_network.PODS,
        }
        described["kubeadmConfigPatches"].append(_patch("ClusterConfiguration", _own_images()))
    return described


def _allow_modules() -> None:
    """Create the directory of kernel modules, which kind mounts into its nodes and which may be missing."""
    with suppress(OSError):
        Path("/lib/modules").mkdir()


def _own_images() -> Mapping[str, Any]:
    return {
        "imageRepository": kind_image.REPOSITORY,
        "etcd": {"local": {"imageTag": versions.ETCD}},
        "dns": {"imageTag": versions.COREDNS},
    }


def _patch(kind: str, content: Mapping[str, Any]) -> str:
    return json.dumps({"kind": kind, **content})


def _run(command: list[str], engine: Engine) -> None:
    settings = {**engine.environment(), "KIND_EXPERIMENTAL_PROVIDER": engine.name}
    commands.run(command, ClusterError, limit=_LIMIT, environment=settings)


def main() -> int:
    """Build the node image if a container engine works here; returns the exit code."""
    engine = find()
    if engine is None:
        say(f"no image of kind's nodes is made: no container engine works here ({', '.join(ENGINES)})")
    else:
        say(f"the image of kind's nodes is {kind_image.ensure(engine)}")
    return 0
