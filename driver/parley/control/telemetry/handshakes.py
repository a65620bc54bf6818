"""Limits the number of TLS handshakes of an HTTP server.

Any client that can connect can begin one, with or without a certificate, and each takes half a megabyte. So the
oldest is aborted for a new one: a legitimate client needs only moments.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

SECONDS = 10.0
"""The time limit for a handshake."""


class _Handshake(asyncio.Protocol):
    """A connection before it is encrypted."""

    def __init__(self, handshakes: "Handshakes") -> None:
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshakes.begin(cast("asyncio.Transport", transport))


class Handshakes:
    """Makes the protocols of connections in their handshakes; one made by `connection` takes over then."""

    def __init__(self, connection: Callable[[], asyncio.Protocol], context: ssl.SSLContext, most: int) -> None:
        self._connection = connection
        self._context = context
        self._most = most
        self._begun: dict[asyncio.Transport, None] = {}
        """The oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return _Handshake(self)

    def begin(self, transport: asyncio.Transport) -> None:
        """Begin the handshake of a new connection; beyond the limit, abort the oldest one."""
        if len(self._begun) >= self._most:
            oldest = next(iter(self._begun))
            del self._begun[oldest]
            oldest.abort()
        self._begun[transport] = None
        task = asyncio.create_task(self._shake(transport))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake(self, transport: asyncio.Transport) -> None:
        connection, loop = self._connection(), asyncio.get_running_loop()
        try:
            if transport.is_closing():
                return
            encrypted = await loop.start_tls(
                transport, connection, self._context, server_side=True, ssl_handshake_timeout=SECONDS
            )
        except OSError:
            return  # the client disconnected, was too slow, or has no valid certificate
        finally:
            self._begun.pop(transport, None)
        if encrypted is not None:  # it was not aborted
            connection.connection_made(encrypted)

    async def end(self) -> None:
        """Cancel all handshakes."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
