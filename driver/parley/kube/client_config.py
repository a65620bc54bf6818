"""A client's configuration (as rest.Config in client-go), and readers of the simple ones.

Simple are a pod's service account, and a kubeconfig whose user has a token and nothing else. For everything else
(client certificates, credential plugins, OIDC, several files) `credentials` uses the kubernetes package: loading
that takes a third of a second and 12 MB, which a program that runs on every node should not need.
"""

import base64
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"

_CLUSTER = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "proxy-url",
}


@dataclass(slots=True)
class ClientConfig:
    """A configuration, with the field names of the kubernetes package, which fills it in, too. `ssl_ca_data` is an
    authority's certificate as PEM, if there is no file of it."""

    host: str = "http://localhost"
    api_key: dict[str, str] = field(default_factory=dict)
    verify_ssl: bool = True
    ssl_ca_cert: str | None = None
    ssl_ca_data: str = ""
    cert_file: str | None = None
    key_file: str | None = None
    tls_server_name: str | None = None
    proxy: str | None = None
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers, which the kubernetes package does not support."""

    def set_bearer_token(self, token: str) -> None:
        """Sets the bearer token."""
        self.api_key["BearerToken"] = f"Bearer {token.strip()}"


def read_service_account(config: ClientConfig, account: Path = _ACCOUNT) -> None:
    """Fills in a pod's in-cluster configuration. Raises ValueError or OSError outside of a pod."""
    host, port = os.environ.get(_HOST), os.environ.get(_PORT)
    if not host or not port:
        raise ValueError(f"{_HOST} and {_PORT} are not set")
    config.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    config.set_bearer_token((account / "token").read_text())
    config.ssl_ca_cert = str(account / "ca.crt")


def read_kubeconfig(path: str, context: str | None, config: ClientConfig) -> bool:
    """Fills in the file's configuration if it is simple; returns whether it is. Raises OSError or YAMLError."""
    file = Path(path).expanduser()
    if not file.is_file():
        return False
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    try:
        chosen = _named(document, "contexts", "context", context or document["current-context"])
        cluster = _named(document, "clusters", "cluster", chosen["cluster"])
        user = _named(document, "users", "user", chosen["user"])
    except (KeyError, TypeError):
        return False
    if set(user) != {"token"} or not user["token"] or not {"server"} <= set(cluster) <= _CLUSTER:
        return False
    config.set_bearer_token(user["token"])
    _read_cluster(cluster, file.parent, config)
    return True


def _named(document: Any, collection: str, part: str, name: str) -> dict[str, Any]:
    """The named entry of a list in the file. Raises KeyError if there is none of that name."""
    found: dict[str, dict[str, Any]] = {entry["name"]: entry[part] for entry in document[collection]}
    return found[name]


def _read_cluster(cluster: dict[str, Any], folder: Path, config: ClientConfig) -> None:
    config.host = cluster["server"].rstrip("/")
    config.verify_ssl = not cluster.get("insecure-skip-tls-verify", False)
    config.tls_server_name = cluster.get("tls-server-name")
    config.proxy = cluster.get("proxy-url")
    if data := cluster.get("certificate-authority-data"):
        config.ssl_ca_data = base64.b64decode(data).decode()
    elif authority := cluster.get("certificate-authority"):
        config.ssl_ca_cert = str(folder / authority)
