"""The API server's address and a client's credentials, from a kubeconfig or a pod's service account.

`client_config` reads simple configurations; the kubernetes package reads all others, runs credential plugins and
refreshes OIDC tokens. This decides when to refresh: after a while, so that rotated tokens and certificates are
used before the old ones expire, and before the next request after the server answered 401. If a refresh fails, the
known credentials are kept: the server decides whether they are valid. `http` sends the requests.
"""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from parley.kube import proxies
from parley.kube.client_config import ClientConfig, read_kubeconfig, read_service_account
from parley.kube.kubeconfig import fault, impersonation, plugin

Load = Callable[[ClientConfig], Awaitable[None]]
"""Fills in the present configuration; called again for a refresh."""

REFRESH_SECONDS = 60.0

PATIENCE_SECONDS = 2.0
"""How long requests wait for new credentials while the known ones may still be valid."""

log = structlog.get_logger(__name__)


class NoConfiguration(Exception):
    """Raised when there is no usable configuration of an API server; the message has a remedy."""


class Credentials:
    """The server's address, TLS and token. Nothing is read before the first call of `refresh`.

    `forget` is called when the server refused the credentials: it drops those that `load` caches.
    """

    def __init__(
        self,
        load: Load,
        source: str,
        refresh_seconds: float = REFRESH_SECONDS,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        self._load = load
        self._forget = forget
        self._source = source
        self._refresh_seconds = refresh_seconds
        self._due: float | None = None
        self._refreshing: asyncio.Future[None] | None = None
        self._loaded: dict[tuple[str, ...], tuple[int, ...]] = {}
        """The loaded files, with the times of their last changes."""
        self._authority = ""
        self.host = ""
        self.server_name: str | None = None
        self.proxy: str | None = None
        self.tls: ssl.SSLContext | None = None
        self.authorization = ""
        self.impersonation: tuple[tuple[str, str], ...] = ()
        """Headers that name the user whom the configuration impersonates."""
        self.certificates = 0
        """The number of client certificates so far. A connection keeps the one with which it was opened."""

    def current(self) -> bool:
        """Whether no refresh is due."""
        return self._due is not None and asyncio.get_running_loop().time() < self._due

    def invalidate(self) -> None:
        """Makes a refresh due before the next request: the server did not accept the credentials."""
        if self._due is not None:
            self._due = 0.0
            self._forget()

    async def refresh(self) -> None:
        """Reads the credentials again if that is due. Raises NoConfiguration if they could never be read.

        A caller may give up, as a request does after its time limit: the refresh continues for later callers. A
        plugin that takes longer than each caller waits would otherwise be started again and again. A plugin is
        called minutes before its token expires: the token stays in use while the plugin hangs.
        """
        if self.current():
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._refresh())
        await asyncio.wait((self._refreshing,), timeout=PATIENCE_SECONDS if self._due else None)
        if self._refreshing.done():
            self._refreshing.result()
        elif self._due:
            self._due = asyncio.get_running_loop().time() + self._refresh_seconds

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(None if self._due is None else self._refresh_seconds):
                await self._read()
        except Exception as error:  # the loader raises many kinds: for YAML, keys, files, types
            if self._due is None:
                raise NoConfiguration(f"{self._source}: {error}") from error
            why = str(error) or type(error).__name__
            log.warning("credentials not refreshed", source=self._source, error=why)
        self._due = asyncio.get_running_loop().time() + self._refresh_seconds

    async def _read(self) -> None:
        config = ClientConfig()
        await self._load(config)
        self.host = config.host
        self.server_name = config.tls_server_name
        self.proxy = config.proxy or proxies.from_environment(self.host)
        self.authorization = config.api_key.get("BearerToken", "").strip()
        self.impersonation = config.impersonation
        if self.host.startswith("https:"):
            self.tls = self._trust(config)

    def _trust(self, config: ClientConfig) -> ssl.SSLContext:
        """The same TLS context each time: open connections refer to it, new ones use new certificates."""
        context = self.tls or _context(verify=config.verify_ssl)
        authority, certificate = config.ssl_ca_cert, config.cert_file
        if authority:
            self._load_changed(partial(context.load_verify_locations, authority), authority)
        elif config.ssl_ca_data and config.ssl_ca_data != self._authority:
            context.load_verify_locations(cadata=config.ssl_ca_data)
        elif self.tls is None:
            context.load_default_certs()
        self._authority = config.ssl_ca_data
        if certificate:
            key = config.key_file or certificate
            pair = partial(_load_pair, context, certificate, key)
            self.certificates += self._load_changed(pair, certificate, key)
        return context

    def _load_changed(self, load: Callable[[], None], *paths: str) -> bool:
        """Loads the files if they changed since the last successful load; returns whether it did."""
        state = tuple(Path(path).stat().st_mtime_ns for path in paths)
        if self._loaded.get(paths) == state:
            return False
        load()
        self._loaded[paths] = state
        return True


def kubeconfig(path: str | None = None, context: str | None = None) -> Credentials:
    """The credentials in a kubeconfig: `path`, else $KUBECONFIG, else ~/.kube/config; of one context."""
    places = path or os.environ.get("KUBECONFIG") or "~/.kube/config"
    loader: Any = None
    others: tuple[tuple[str, str], ...] = ()

    async def load(config: ClientConfig) -> None:
        nonlocal loader, others
        config.impersonation = others
        if loader is not None:
            await loader.load_and_set(config)
            return
        if found := fault(places, context):
            raise ValueError(found)
        if read_kubeconfig(places, context, config):
            return
        config.impersonation = others = impersonation(places, context)
        from kubernetes.aio.config import load_kube_config

        loader = await load_kube_config(  # type: ignore[no-untyped-call]  # the package types half of itself
            places, context, config, persist_config=False
        )
        if (command := plugin(places, context)) and not (config.api_key or config.cert_file):
            raise ValueError(f"`{command}` gave no credentials: run it yourself to see why")

    def forget() -> None:
        """Drops the plugin's token, which the kubernetes package would otherwise use until it expires."""
        if loader is not None:
            vars(loader).pop("exec_plugin_expiry", None)

    chosen = f"context {context!r}" if context else "current context"
    return Credentials(load, f"kubeconfig {places}, {chosen}", forget=forget)


def in_cluster() -> Credentials:
    """The credentials of the service account of the pod in which this runs."""

    async def load(config: ClientConfig) -> None:
        read_service_account(config)

    return Credentials(load, "the pod's service account (outside of a pod, name a kubeconfig with --kubeconfig)")


def _context(verify: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Loads the pair, tested apart first: a failed load would remove the pair that the context has."""
    _context(verify=False).load_cert_chain(certificate, key)
    context.load_cert_chain(certificate, key)
