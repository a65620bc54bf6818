"""Requests to the API server while a cluster starts, through `parley.kube`; and whether a URL answers at all.

The programs that start clusters are not asynchronous, some of their callers are: each question has an event loop
of its own.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from parley.api.resources import Resource
from parley.kube.client import Client, NotFound
from parley.kube.http import HttpClient
from parley_devcluster.certificates import KeyPair

T = TypeVar("T")

NAMESPACES: Resource[dict[str, Any]] = Resource("", "v1", "namespaces", "Namespace", False, dict[str, Any])
NODES: Resource[dict[str, Any]] = Resource("", "v1", "nodes", "Node", False, dict[str, Any])
SERVICE_ACCOUNTS: Resource[dict[str, Any]] = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", True, dict[str, Any]
)

_PAUSE = 0.1


class ApiServer:
    """Synchronous access to the API server as the user of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def ask(self, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run `question` with a client and return its result; raises its errors, those of `parley.kube.client`."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._answer(question)).result()

    async def _answer(self, question: Callable[[Client], Awaitable[T]]) -> T:
        async with HttpClient.from_kubeconfig(str(self._kubeconfig)) as client:
            return await question(client)


async def when_found(request: Callable[[], Awaitable[T]], limit: float = 20.0) -> T:
    """The answer, once the object exists: some are made by a controller shortly after their cause.

    Raises `NotFound` where it does not within `limit` seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    while True:
        try:
            return await request()
        except NotFound:
            if loop.time() > deadline:
                raise
        await asyncio.sleep(_PAUSE)


def answers(url: str, authority: Path, client: KeyPair, timeout: float = 2.0) -> bool:
    """Whether a GET of that URL, with or without the client certificate, returns 200."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port
    connection: http.client.HTTPConnection
    if address.scheme == "http":
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    else:
        tls = ssl.create_default_context(cafile=str(authority))
        tls.load_cert_chain(client.certificate, client.key)
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=tls)
    try:
        connection.request("GET", address.path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
