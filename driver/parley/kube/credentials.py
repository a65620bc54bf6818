"""Where the API server is, and how a client proves who it is: a kubeconfig or a pod's service account.

Reading simple configurations is `client_config`'s; all others, running credential plugins and refreshing OIDC
tokens are the kubernetes package's. This decides when they are looked at again: after a while, so that rotated
tokens and certificates are used before the old ones end, and before the next request after the server answered
401. If looking again fails, the known credentials are kept: the server is the judge of them. What goes over the
wire is `http`'s.
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
"""Fills in what is known now; called again for a refresh."""

REFRESH_SECONDS = 60.0

PATIENCE_SECONDS = 2.0
"""So long requests wait for new credentials while nothing speaks against those that are known."""

log = structlog.get_logger(__name__)


class NoConfiguration(Exception):
    """Raised when there is no usable description of an API server, with what to do about it."""


class Credentials:
    """The server's address, TLS and token. Nothing is read before `refresh` is called for the first time.

    `forget` is called when the server refused them: what `load` keeps in memory is no good then.
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
        """Files with the times of their last changes."""
        self._authority = ""
        self.host = ""
        self.server_name: str | None = None
        self.proxy: str | None = None
        self.tls: ssl.SSLContext | None = None
        self.authorization = ""
        self.impersonation: tuple[tuple[str, str], ...] = ()
        """Headers that name the user as whom the configuration acts."""
        self.certificates = 0
        """How many the client has had. A connection goes on with the one that it began with."""

    def current(self) -> bool:
        """Whether `refresh` has nothing to do."""
        return self._due is not None and asyncio.get_running_loop().time() < self._due

    def doubt(self) -> None:
        """The server did not accept them: refresh before the next request."""
        if self._due is not None:
            self._due = 0.0
            self._forget()

    async def refresh(self) -> None:
        """Look again if it is time to. Raises NoConfiguration if they could never be read.

        Whoever waits for it may give up, as a request does after its time: it goes on for those who come later. A
        plugin that takes longer than each of them waits would otherwise be begun again and again. A plugin is
        asked minutes before its token ends: that one goes on to be used where the plugin hangs.
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
        except Exception as error:  # the loader raises whatever it stumbles over: YAML, keys, files, types
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
        """The same context each time, since open connections hold on to it; new ones see new certificates."""
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
        """Unless these files are what was loaded last; whether they were not. What fails is tried again."""
        state = tuple(Path(path).stat().st_mtime_ns for path in paths)
        if self._loaded.get(paths) == state:
            return False
        load()
        self._loaded[paths] = state
        return True


def kubeconfig(path: str | None = None, context: str | None = None) -> Credentials:
    """Of a kubeconfig: `path`, else $KUBECONFIG, else ~/.kube/config; its current context unless one is named."""
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
        """The kubernetes package asks a plugin again when what that gave expires, though the server refused it."""
        if loader is not None:
            vars(loader).pop("exec_plugin_expiry", None)

    chosen = f"context {context!r}" if context else "current context"
    return Credentials(load, f"kubeconfig {places}, {chosen}", forget=forget)


def in_cluster() -> Credentials:
    """Of the service account of the pod in which this runs."""

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
    """Tried apart first: a certificate whose key is not written yet would cost the context the pair it has."""
    _context(verify=False).load_cert_chain(certificate, key)
    context.load_cert_chain(certificate, key)
