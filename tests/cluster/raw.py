"""Requests to a real API server as tests want them: any path, any content, an answer that nothing has decoded.

For one thread at a time. What Parley itself sends goes through `parley.kube`.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from parley_devcluster import Cluster
from parley_devcluster.certificates import Authority, KeyPair
from parley_devcluster.control_plane import ADMIN

_TIMEOUT = 30.0
_JSON, _MERGE = "application/json", "application/merge-patch+json"


class Refused(RuntimeError):
    """The API server refused a request."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path} was answered with {status}: {message}")
        self.status = status


@cache
def raw(cluster: Cluster) -> RawServer:
    """The cluster's API server as its admin sees it."""
    authority = Authority(cluster.directory / "pki")
    return RawServer(cluster.server, authority.pair.certificate, authority.named(ADMIN))


def with_token(cluster: Cluster, kubeconfig: Path) -> RawServer:
    """The cluster's API server as the service account of that kubeconfig sees it."""
    (user,) = json.loads(kubeconfig.read_text())["users"]
    authority = Authority(cluster.directory / "pki")
    return RawServer(cluster.server, authority.pair.certificate, token=user["user"]["token"])


class RawServer:
    """The API server as the holder of a client certificate or a token sees it; for one thread at a time."""

    def __init__(self, server: str, authority: Path, client: KeyPair | None = None, token: str = "") -> None:
        self._address = urlsplit(server)
        self._tls = _trusting(authority, client)
        self._credentials = {"Authorization": f"Bearer {token}"} if token else {}
        self._kept: http.client.HTTPSConnection | None = None

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, body: object) -> Any:
        return self.request("POST", path, body)

    def patch(self, path: str, body: object) -> Any:
        """A merge patch."""
        return self.request("PATCH", path, body, _MERGE)

    def request(self, method: str, path: str, body: object = None, content_type: str = _JSON) -> Any:
        """The decoded answer; raises `Refused` for a refusal, `OSError` where no server answers."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Accept": _JSON, **self._credentials}
        status, data = self._exchange(method, path, payload, headers)
        if status >= 400:
            raise Refused(method, path, status, _message(data))
        return json.loads(data) if data else None

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Requests inside share one connection; outside, each has its own and leaves none behind."""
        with closing(self._connect()) as connection:
            self._kept = connection
            try:
                yield
            finally:
                self._kept = None

    def _exchange(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = self._kept or self._connect()
        try:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            if connection is not self._kept:
                connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        host, port = self._address.hostname or "", self._address.port
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=self._tls)


def _trusting(authority: Path, client: KeyPair | None) -> ssl.SSLContext:
    """Accepts servers of the cluster's authority and shows the client's certificate, if there is one."""
    context = ssl.create_default_context(cafile=str(authority))
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    return context


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace")[:500]
