"""A thin client of the API server for the benchmark: many requests at once, answers not decoded unless wanted.

It shares the machine with what it measures, so it does as little as possible, and it is not Parley's own
client, whose cost is part of what is measured.
"""

import asyncio
import base64
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson
import yaml

from parley.api.resources import Resource

_CONNECTIONS = 16
_MERGE = "application/merge-patch+json"


class Refused(RuntimeError):
    """Raised when the API server refused a request of the benchmark."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


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
        headers = {"Content-Type": _MERGE if method == "PATCH" else "application/json"}
        async with self._session.request(method, path, data=data, headers=headers) as response:
            answer = await response.read()
            if response.status >= 400:
                words = f"{method} {path}: {response.status} {answer.decode()[:500]}"
                raise Refused(response.status, words)
            return answer

    async def get(self, path: str) -> Any:
        """The object or list, decoded."""
        return orjson.loads(await self.request("GET", path))

    async def create_all(self, path: str, bodies: Iterable[Mapping[str, Any]], connections: int = 8) -> None:
        """Create the objects over so many connections at once."""
        left = iter(bodies)

        async def create_some() -> None:
            for body in left:
                await self.request("POST", path, body)

        await asyncio.gather(*(create_some() for _ in range(connections)))

    async def count(self, path: str) -> int:
        """How many objects a collection has, without reading them all."""
        listing = await self.get(f"{path}?limit=1")
        return len(listing["items"]) + int(listing["metadata"].get("remainingItemCount", 0))

    async def has(self, kind: Resource[Any], namespace: str, count: int) -> bool:
        """Whether the namespace has so many objects of the kind."""
        return await self.count(kind.path(namespace)) == count

    async def create_namespace(self, name: str) -> None:
        """Create it."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.request("POST", "/api/v1/namespaces", body)

    async def has_namespace(self, name: str) -> bool:
        """Whether it is there, if only to be deleted."""
        found = await self.get(f"/api/v1/namespaces?fieldSelector=metadata.name={name}")
        return bool(found["items"])


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
