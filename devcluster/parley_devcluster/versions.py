"""The programs of a local cluster, their versions, and the Go packages from which they are built.

All version pins of the development cluster are here. `gobuild` builds the programs, `binaries` finds them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

ETCD = "v3.7.3"
CONTAINERD = "v2.4.2"
HELM = "v4.3.1"
KIND = "v0.33.0"
KREW = "v0.4.3"
COREDNS = "v1.14.6"
"""The version that kubeadm 1.37 uses."""
PROMETHEUS = "v0.316.0"
"""The version of the Go module; the release is 3.16.0."""
PROMETHEUS_OPERATOR = "v0.85.0"
CERT_MANAGER = "v1.21.2"
"""Clusters may have the CRDs of these two projects; neither is built here."""
LOCAL_PATH_PROVISIONER = "v0.0.30"
"""Benchmarks compare workspaces with its volumes; not part of a cluster."""
STRUCTURED_DRA = "v1.37.0"
CLASSIC_DRA = "v1.31.0"
"""The Kubernetes versions that benchmarks compare with: one that allocates in the scheduler's memory, and the last
release with negotiated allocation."""

SCHEDULER_PERF = "scheduler_perf"
"""Kubernetes' benchmark of its own scheduler; not part of a cluster."""

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("kubelet", "containerd", "ctr", "containerd-shim-runc-v2")
INSTALLER = ("helm",)
ALERTS = ("promtool",)
"""For tests of alerts; not part of a cluster."""
PLUGINS = ("krew",)
"""For the test of the kubectl plugin; not part of a cluster."""
CONTAINERS = ("kind", "kubeadm", "kube-proxy", "coredns")
"""What a cluster in containers needs in addition to all programs of a control plane and nodes."""

_SHORT_NAMES = {
    "k8s.io/kubernetes": "kubernetes",
    "go.etcd.io/etcd/server/v3": "etcd",
    "github.com/containerd/containerd/v2": "containerd",
    "github.com/prometheus/prometheus": "prometheus",
    "helm.sh/helm/v4": "helm",
    "sigs.k8s.io/kind": "kind",
    "sigs.k8s.io/krew": "krew",
    "github.com/coredns/coredns": "coredns",
    "github.com/rancher/local-path-provisioner": "local-path-provisioner",
}

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class VersionError(ValueError):
    """A version that is not `v<major>.<minor>.<patch>`, or that lacks the API that Parley needs."""


@dataclass(frozen=True)
class GoModule:
    """A Go module at one version, the programs that are built from it, and variables that the linker sets."""

    path: str
    version: str
    programs: tuple[tuple[str, str], ...]
    """Pairs of a program's file name and the Go package from which it is built."""
    variables: tuple[tuple[str, str], ...] = ()
    """Pairs of a Go variable and the string to which the linker sets it."""
    tags: tuple[str, ...] = ()
    """Build tags."""
    tests: bool = False
    """Whether the programs are the tests of their packages (`go test -c`)."""

    @property
    def folder(self) -> str:
        """The name of the module's folder in the cache: its short name and version."""
        return f"{_SHORT_NAMES[self.path]}-{self.version}"


def kubernetes_version(text: str) -> str:
    """The version with a leading `v`; raises `VersionError` if it is malformed or older than 1.36."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise VersionError(
            f"Kubernetes version {text!r} is not of the form v1.37.0: give major, minor and patch number"
        )
    major, minor, patch = (int(part) for part in match.groups())
    if (major, minor) < (1, 36):
        raise VersionError(
            f"Kubernetes version {text!r} is too old: Parley needs 1.36 or later (binding conditions)"
        )
    return f"v{major}.{minor}.{patch}"


KUBERNETES = kubernetes_version(os.environ.get("PARLEY_KUBERNETES") or "v1.37.0")
"""The default Kubernetes version of clusters."""


def modules(kubernetes: str = KUBERNETES) -> tuple[GoModule, ...]:
    """The Go modules of a cluster of that Kubernetes version, in the best order for building them."""
    return (
        _kubernetes(kubernetes),
        _etcd(),
        _containerd(),
        _helm(),
        _prometheus(),
        _krew(),
        kind(),
        _coredns(),
    )


def _kubernetes(version: str) -> GoModule:
    components = ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet", "kubectl")
    names = (*components, "kubeadm", "kube-proxy")
    programs = tuple((name, f"k8s.io/kubernetes/cmd/{name}") for name in names)
    return GoModule("k8s.io/kubernetes", version, programs, _reported(version))


def _reported(version: str) -> tuple[tuple[str, str], ...]:
    """The variables for the reported version; without them the API server reports v0.0.0."""
    major, minor, _ = version.removeprefix("v").split(".")
    settings = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    return tuple(
        (f"k8s.io/{package}.{variable}", value)
        for package in ("component-base/version", "client-go/pkg/version")
        for variable, value in settings.items()
    )


def scheduler_perf(version: str, folder: str) -> GoModule:
    """The tests in that folder of Kubernetes, which run an API server, a scheduler and some controllers in one
    process."""
    path = "k8s.io/kubernetes"
    return GoModule(path, version, ((SCHEDULER_PERF, f"{path}/{folder}"),), _reported(version), tests=True)


def _etcd() -> GoModule:
    return GoModule("go.etcd.io/etcd/server/v3", ETCD, (("etcd", "go.etcd.io/etcd/server/v3"),))


def _containerd() -> GoModule:
    path = "github.com/containerd/containerd/v2"
    names = ("containerd", "ctr", "containerd-shim-runc-v2")
    return GoModule(
        path,
        CONTAINERD,
        tuple((name, f"{path}/cmd/{name}") for name in names),
        ((f"{path}/version.Version", CONTAINERD),),
    )


def _helm() -> GoModule:
    path = "helm.sh/helm/v4"
    return GoModule(path, HELM, (("helm", f"{path}/cmd/helm"),), ((f"{path}/internal/version.version", HELM),))


def _prometheus() -> GoModule:
    """Without service discovery, which takes 90 modules of cloud vendors and which rules do not need."""
    path = "github.com/prometheus/prometheus"
    return GoModule(path, PROMETHEUS, (("promtool", f"{path}/cmd/promtool"),), tags=("remove_all_sd",))


def _krew() -> GoModule:
    path = "sigs.k8s.io/krew"
    return GoModule(path, KREW, (("krew", f"{path}/cmd/krew"),), ((f"{path}/internal/version.gitTag", KREW),))


def kind() -> GoModule:
    """kind's module, which also contains the files of its node image."""
    return GoModule("sigs.k8s.io/kind", KIND, (("kind", "sigs.k8s.io/kind"),))


def _coredns() -> GoModule:
    path = "github.com/coredns/coredns"
    return GoModule(path, COREDNS, (("coredns", path),))


def local_path_provisioner() -> GoModule:
    """The provisioner of volumes in nodes' directories, for clusters without a storage system."""
    path = "github.com/rancher/local-path-provisioner"
    version = LOCAL_PATH_PROVISIONER
    return GoModule(path, version, (("local-path-provisioner", path),), (("main.VERSION", version),))
