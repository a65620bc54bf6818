"""A thin client of the API server for the benchmark: many requests at once, answers not decoded unless wanted.

It shares the machine with what it measures, so it does as little as possible, and it is not Parley's own
client, whose cost is part of what is measured.
"""

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson
import yaml

_CONNECTIONS = 16


class Refused(RuntimeError):
    """Raised when the API server refused a request of the benchmark."""


class Api:
    """The API server as the kubeconfig's user sees it. Use it as a context manager."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        self._server = document["clusters"][0]["cluster"]["server"]
        self._tls = _tls(kubeconfig, document)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=self._tls)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(self._server, connector=connector, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """The answer as it came. Raises Refused with the server's words."""
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": "application/json"}
        async with self._session.request(method, path, data=data, headers=headers) as response:
            answer = await response.read()
            if response.status >= 400:
                raise Refused(f"{method} {path}: {response.status} {answer.decode()[:500]}")
            return answer

    async def get(self, path: str) -> Any:
        """The object or list, decoded."""
        return orjson.loads(await self.request("GET", path))

    async def count(self, path: str) -> int:
        """How many objects a collection has, without reading them all."""
        listing = await self.get(f"{path}?limit=1")
        return len(listing["items"]) + int(listing["metadata"].get("remainingItemCount", 0))


def _tls(kubeconfig: Path, document: Any) -> ssl.SSLContext:
    user, cluster = document["users"][0]["user"], document["clusters"][0]["cluster"]
    context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
    pair = kubeconfig.with_suffix(".pem")
    pair.touch(mode=0o600)
    pair.write_text(_decoded(user["client-certificate-data"]) + _decoded(user["client-key-data"]))
    context.load_cert_chain(pair)
    return context


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
