"""The few requests that bringing a cluster up needs, over the standard library's HTTP client.

Parley itself talks to the API server through `parley.kube`; this is a synchronous client for the program that
starts the API server.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from parley_devcluster.certificates import KeyPair

_TIMEOUT = 30.0
_JSON, _MERGE = "application/json", "application/merge-patch+json"


class ApiError(RuntimeError):
    """The API server refused a request."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path} was answered with {status}: {message}")
        self.status = status


class ApiServer:
    """The API server as the holder of a client certificate sees it; for one thread at a time."""

    def __init__(self, server: str, authority: Path, client: KeyPair) -> None:
        self._address = urlsplit(server)
        self._tls = _trusting(authority, client)
        self._kept: http.client.HTTPSConnection | None = None

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, body: object) -> Any:
        return self.request("POST", path, body)

    def patch(self, path: str, body: object) -> Any:
        """A merge patch."""
        return self.request("PATCH", path, body, _MERGE)

    def request(self, method: str, path: str, body: object = None, content_type: str = _JSON) -> Any:
        """The decoded answer; raises `ApiError` for a refusal, `OSError` where no server answers."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Accept": _JSON}
        status, data = self._exchange(method, path, payload, headers)
        if status >= 400:
            raise ApiError(method, path, status, _message(data))
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


def answers(url: str, authority: Path, client: KeyPair, timeout: float = 2.0) -> bool:
    """Whether a GET of that URL, plain or with the client certificate, is answered with 200."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port
    connection: http.client.HTTPConnection
    if address.scheme == "http":
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    else:
        tls = _trusting(authority, client)
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=tls)
    try:
        connection.request("GET", address.path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _trusting(authority: Path, client: KeyPair) -> ssl.SSLContext:
    """Accepts servers of the cluster's authority and shows the client's certificate."""
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(client.certificate, client.key)
    return context


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace")[:500]
