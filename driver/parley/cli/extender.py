"""Options of `parley controller` for the scheduler extender: address, certificates, and whose pods it places."""

import ssl
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from parley.scheduler.extender.certificates import Certificates
from parley.scheduler.extender.endpoint import ServiceAddress
from parley.scheduler.extender.server import Leading, serving

PARLEY = "parley"
"""The scheduler's name if none is given."""

Address = Annotated[
    str,
    typer.Option(
        help="HOST:PORT at which to answer a kube-scheduler's extender calls, such as 127.0.0.1:8090. Hosts other "
        "than loopback need the three files. Default: no calls are answered.",
        show_default=False,
    ),
]
SchedulerName = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Pods with this schedulerName are placed by the extender; can be repeated. Default: {PARLEY}.",
        show_default=False,
    ),
]
ManagedResource = Annotated[
    list[str] | None,
    typer.Option(
        help="Pods that request this resource are placed by the extender: managedResources of the entry in the "
        "cluster's own scheduler; can be repeated.",
        show_default=False,
    ),
]
Certificate = Annotated[Path | None, typer.Option(help="PEM file.", show_default=False)]
PrivateKey = Annotated[Path | None, typer.Option(help="PEM file.", show_default=False)]
ClientCa = Annotated[
    Path | None,
    typer.Option(help="PEM file: the CA for the client certificates of schedulers.", show_default=False),
]
ServiceName = Annotated[
    str,
    typer.Option(
        "--extender-service",
        help="A Service of the controller's namespace, without a selector, by which schedulers reach the "
        "controller that leads: it keeps its --pod-ip in the Service's EndpointSlice.",
        show_default=False,
    ),
]
PodIp = Annotated[
    str, typer.Option("--pod-ip", help="This pod's address, for --extender-service.", show_default=False)
]


@dataclass(frozen=True)
class ExtenderEntry:
    """The extender's server: its address, certificates and schedulers."""

    host: str
    port: int
    certificates: Certificates | None

    def serving(self, leading: Leading) -> AbstractAsyncContextManager[int]:
        """Serves the extender within the block."""
        return serving(leading, self.host, self.port, self._context())

    def _context(self) -> ssl.SSLContext | None:
        return self.certificates.context() if self.certificates is not None else None


def entry(
    address: str, certificate: Path | None, key: Path | None, client_ca: Path | None
) -> ExtenderEntry | None:
    """Where schedulers come in; None if nowhere. Raises typer.BadParameter."""
    files = [file for file in (certificate, key, client_ca) if file is not None]
    if not address:
        if files:
            raise typer.BadParameter(
                "certificates are given without --extender-address: give that too, or leave the certificates out"
            )
        return None
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise typer.BadParameter(f"--extender-address {address!r} is not HOST:PORT: write it as in 127.0.0.1:8090")
    certificates = None
    if certificate is not None and key is not None and client_ca is not None:
        certificates = Certificates(certificate, key, client_ca)
        _usable(certificates)
    elif files:
        raise typer.BadParameter(
            "--extender-tls-cert, --extender-tls-key and --extender-client-ca belong together: give all three"
        )
    elif not _loopback(host):
        raise typer.BadParameter(
            f"--extender-address {address!r} can be reached from other hosts, and whoever reaches it can bind "
            "pods: use 127.0.0.1, or give --extender-tls-cert, --extender-tls-key and --extender-client-ca"
        )
    return ExtenderEntry(host, int(port), certificates)


def endpoint(entry: ExtenderEntry | None, service: str, pod_ip: str) -> ServiceAddress | None:
    """Where schedulers reach this process by that Service; None without one. Raises typer.BadParameter."""
    if not service and not pod_ip:
        return None
    if entry is None or not service or not pod_ip:
        raise typer.BadParameter(
            "--extender-service needs --extender-address and --pod-ip: give all three, or none"
        )
    try:
        ip_address(pod_ip)
    except ValueError:
        raise typer.BadParameter(f"--pod-ip {pod_ip!r} is not an IP address: give that of this pod") from None
    return ServiceAddress(service, pod_ip, entry.port)


def _usable(certificates: Certificates) -> None:
    try:
        certificates.context()
    except OSError as error:
        raise typer.BadParameter(
            f"--extender-tls-cert, --extender-tls-key or --extender-client-ca can't be used: {error}: give PEM "
            "files that can be read, with the certificate's key"
        ) from None


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
