"""TLS handshakes of an HTTP server of ours: at most so many at a time.

Whoever can connect can begin one, whether it has a certificate or not, and each takes half a megabyte. So the
oldest is given up for a new one: a client that is to get in needs no more than moments.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

SECONDS = 10.0
"""So long one may take."""


class _Handshake(asyncio.Protocol):
    """A connection before it is encrypted."""

    def __init__(self, handshakes: "Handshakes") -> None:
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshakes.begin(cast("asyncio.Transport", transport))


class Handshakes:
    """Makes the protocols of connections that are to be encrypted. What `connection` makes takes over when one
    is."""

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
        """A connection is there; if that is one too many, the oldest goes."""
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
            return  # the other side went, was too slow, or is not let in
        finally:
            self._begun.pop(transport, None)
        if encrypted is not None:  # it was not given up
            connection.connection_made(encrypted)

    async def end(self) -> None:
        """Give all up."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
