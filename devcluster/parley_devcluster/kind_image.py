"""The image of kind's nodes, made here: kind's own files, programs built from Go modules, Debian's packages.

kind's published images need a registry, and have the versions of Kubernetes that kind chose. This one has the
development cluster's versions, as `kind build node-image` would make it: kind's module brings the files of its
base image, and the images of the control plane, each of one program, are in containerd's store when a node starts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from parley_devcluster import binaries, debian_image, gobuild, images, versions
from parley_devcluster.debian import BUSYBOX
from parley_devcluster.debian_image import BaseImage
from parley_devcluster.engine import Engine
from parley_devcluster.gobuild import Report, say
from parley_devcluster.images import archive, busybox_images, program_image

REPOSITORY = "parley.dev"
"""Where kubeadm finds the images of the control plane; no registry is asked, for every node has them."""

_NODE = ("kubelet", "kubeadm", "kubectl", "containerd", "containerd-shim-runc-v2", "ctr")
_CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_FILES = "kind_node"  # Dockerfile and what it copies, beside this file

BASE = BaseImage(
    "kind-base",
    (
        *(
            "ca-certificates",
            "conntrack",
            "containernetworking-plugins",
            "dbus",
            "ethtool",
            "iproute2",
            "iptables",
        ),
        *("jq", "kmod", "libseccomp2", "mount", "nftables", "procps", "runc", "systemd", "systemd-sysv"),
    ),
)
"""What kind's own base has, without what storage over the network and other snapshotters need."""


def name(kubernetes: str = versions.KUBERNETES) -> str:
    """The image's name; another version of anything in it, or of the code that makes it, is another image."""
    files = resources.files("parley_devcluster") / _FILES
    texts = [file.read_text() for file in (files / "Dockerfile", Path(__file__), Path(images.__file__))]
    pins = [BASE.image, versions.KIND, versions.ETCD, versions.CONTAINERD, versions.COREDNS, *texts]
    digest = hashlib.sha256("\n".join(pins).encode()).hexdigest()
    return f"{REPOSITORY}/kind-node:{kubernetes}-{digest[:12]}"


def ensure(engine: Engine, kubernetes: str = versions.KUBERNETES, report: Report = say) -> str:
    """The name of the node image, which is made if the engine has none: two minutes when the programs are built.

    Raises `EngineError` and `BuildError`.
    """
    image = name(kubernetes)
    if engine.has(image):
        return image
    wanted = (*versions.CONTROL_PLANE, *versions.NODE, *versions.CONTAINERS)
    programs = binaries.obtain(wanted, kubernetes, environment=_cache_only(), report=report)
    base = debian_image.ensure(engine, BASE, report)
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        report(f"making the image {image} of kind's nodes")
        _write_context(context, programs, kubernetes)
        _build(engine, context, base, "proxy", proxy_image(kubernetes))
        engine.run("save", "--output", str(context / "images" / "proxy.tar"), proxy_image(kubernetes))
        _build(engine, context, base, "node", image)
    return image


def control_plane_images(kubernetes: str) -> Mapping[str, str]:
    """The image of each program, named as kubeadm asks for it."""
    names = {program: f"{REPOSITORY}/{program}:{kubernetes}" for program in _CONTROL_PLANE}
    return {
        **names,
        "etcd": f"{REPOSITORY}/etcd:{versions.ETCD}",
        "coredns": f"{REPOSITORY}/coredns:{versions.COREDNS}",
    }


def proxy_image(kubernetes: str) -> str:
    """kube-proxy's, which needs `nft` besides."""
    return f"{REPOSITORY}/kube-proxy:{kubernetes}"


def _write_context(context: Path, programs: Mapping[str, Path], kubernetes: str) -> None:
    """What the Dockerfile copies: kind's files, programs, images, the version."""
    files = resources.files("parley_devcluster") / _FILES
    with resources.as_file(files) as folder:
        shutil.copytree(folder, context, dirs_exist_ok=True)
    _copy_files(gobuild.source(versions.kind()) / "images" / "base" / "files", context / "files")
    for name in ("bin", "proxy", "images"):
        (context / name).mkdir()
    for program in _NODE:
        shutil.copy(programs[program], context / "bin" / program)
    shutil.copy(programs["kube-proxy"], context / "proxy" / "kube-proxy")
    made = [program_image(image, programs[program]) for program, image in control_plane_images(kubernetes).items()]
    archive(context / "images" / "images.tar", [*made, *busybox_images(BUSYBOX)])
    (context / "version").write_text(kubernetes)


def _copy_files(source: Path, target: Path) -> None:
    """A module's files are read-only, and none of them is executable."""
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)


def _build(engine: Engine, context: Path, base: str, stage: str, tag: str) -> None:
    """Not from the engine's cache: podman's does not look at what a step mounts."""
    engine.run("build", "--no-cache", "--target", stage, "--tag", tag, "--build-arg", f"BASE={base}", str(context))


def _cache_only() -> Mapping[str, str]:
    """Where programs are looked for: those of PATH may need libraries that a node does not have."""
    return {name: value for name, value in os.environ.items() if name == "XDG_CACHE_HOME"}
