"""The command lines of etcd, API server, controller-manager and scheduler: a layout in, commands out.

Everything listens on the loopback address, etcd only for holders of a certificate of its own authority, which
is the API server. Client limits of the scheduler and the controller-manager are raised so far that they are
never what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parley_devcluster.layout import Layout

ADMIN = "admin"
SERVING = "serving"
ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KUBELET_CLIENT = "kubelet-client"

USERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    ADMIN: ("admin", ("system:masters",)),
    CONTROLLER_MANAGER: ("system:kube-controller-manager", ()),
    SCHEDULER: ("system:kube-scheduler", ()),
    KUBELET_CLIENT: ("kube-apiserver-kubelet-client", ("system:masters",)),
}
"""Certificate file name: user name and groups."""

_QPS = 5000
_WITHOUT_HEARTBEATS = "*,-node-lifecycle-controller,-taint-eviction-controller"


@dataclass(frozen=True)
class Command:
    """The command line of a component, and its health check."""

    name: str
    argv: tuple[str, ...]
    health: str | None = None
    """The URL that returns 200 when the component is healthy, or the path of the socket on which it then
    listens."""
    environment: Mapping[str, str] = field(default_factory=dict)


def control_plane(layout: Layout) -> tuple[Command, ...]:
    """The components in the order in which they start; they stop in reverse order."""
    return (etcd(layout), api_server(layout), controller_manager(layout), scheduler(layout))


def etcd(layout: Layout) -> Command:
    """etcd, with `--unsafe-no-fsync`: the page cache survives the process, and tests kill nothing else."""
    client, peer = (f"https://127.0.0.1:{port}" for port in (layout.ports.etcd, layout.ports.etcd_peer))
    health = f"http://127.0.0.1:{layout.ports.etcd_health}"
    pki = layout.pki / ETCD
    tls = [
        flag
        for prefix in ("", "peer-")
        for flag in (
            f"--{prefix}cert-file={pki}/{ETCD}.crt",
            f"--{prefix}key-file={pki}/{ETCD}.key",
            f"--{prefix}trusted-ca-file={pki}/ca.crt",
            f"--{prefix}client-cert-auth=true",
        )
    ]
    argv = (
        f"--data-dir={layout.directory}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--listen-metrics-urls={health}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
        *tls,
    )
    return _command(layout, ETCD, argv, f"{health}/readyz")


def api_server(layout: Layout) -> Command:
    """Unless it is asked for, the ServiceAccount admission plugin is off: pods can be created at once in a new
    namespace. The accounts themselves are made by the controller-manager, and their tokens by TokenRequest."""
    pki, port = layout.pki, layout.ports.api_server
    argv = (
        f"--etcd-servers=https://127.0.0.1:{layout.ports.etcd}",
        f"--etcd-cafile={pki}/{ETCD}/ca.crt",
        f"--etcd-certfile={pki}/{ETCD}/{ETCD}.crt",
        f"--etcd-keyfile={pki}/{ETCD}/{ETCD}.key",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        f"--tls-cert-file={pki}/{SERVING}.crt",
        f"--tls-private-key-file={pki}/{SERVING}.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/{KUBELET_CLIENT}.crt",
        f"--kubelet-client-key={pki}/{KUBELET_CLIENT}.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        *([] if layout.service_accounts else ["--disable-admission-plugins=ServiceAccount"]),
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/service-account.key",
        f"--service-account-signing-key-file={pki}/service-account.key",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        # as in upgraded clusters: what holds for claims must hold for these versions too
        "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true",
    )
    return _command(layout, API_SERVER, argv, f"{layout.server}/readyz")


def controller_manager(layout: Layout) -> Command:
    """The kube-controller-manager; without node lifecycle, without the controllers that need heartbeats."""
    argv = (
        *_client(layout, CONTROLLER_MANAGER, layout.ports.controller_manager),
        f"--kubeconfig={layout.kubeconfigs}/{CONTROLLER_MANAGER}",
        "--leader-elect=false",
        f"--kube-api-qps={_QPS}",
        f"--kube-api-burst={_QPS}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={layout.pki}/service-account.key",
        f"--root-ca-file={layout.pki}/ca.crt",
        *([] if layout.node_lifecycle else [f"--controllers={_WITHOUT_HEARTBEATS}"]),
    )
    return _command(layout, CONTROLLER_MANAGER, argv, _healthz(layout.ports.controller_manager))


def scheduler(layout: Layout) -> Command:
    """The cluster's own kube-scheduler."""
    return further_scheduler(layout, SCHEDULER, layout.ports.scheduler)


def further_scheduler(layout: Layout, name: str, port: int) -> Command:
    """A scheduler with that component name, which reads the configuration file of the same name."""
    argv = (*_client(layout, SCHEDULER, port), f"--config={scheduler_file(layout, name)}")
    return Command(name, (str(layout.binaries / SCHEDULER), *argv), _healthz(port))


def scheduler_file(layout: Layout, name: str = SCHEDULER) -> Path:
    """The path of the configuration file of the scheduler with that component name."""
    return layout.directory / f"{name}.yaml"


def scheduler_configuration(layout: Layout, own: Mapping[str, Any]) -> dict[str, Any]:
    """The KubeSchedulerConfiguration: the caller's own keys replace these."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(layout.kubeconfigs / SCHEDULER),
            "qps": _QPS,
            "burst": _QPS,
        },
        "leaderElection": {"leaderElect": False},
        **own,
    }


def _client(layout: Layout, name: str, port: int) -> tuple[str, ...]:
    """The arguments that the two clients of the API server share; reading their metrics needs the admin's
    certificate."""
    kubeconfig = layout.kubeconfigs / name
    return (
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.pki}/{SERVING}.crt",
        f"--tls-private-key-file={layout.pki}/{SERVING}.key",
        f"--client-ca-file={layout.pki}/ca.crt",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    )


def _healthz(port: int) -> str:
    return f"https://127.0.0.1:{port}/healthz"


def _command(layout: Layout, name: str, argv: tuple[str, ...], health: str) -> Command:
    return Command(name, (str(layout.binaries / name), *argv), health)
