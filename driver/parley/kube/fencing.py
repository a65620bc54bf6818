"""Fencing: no write leaves a process that may have lost its lease.

`LeasedClient` checks with the elector before each write, and gives up a write that takes longer than the lease
allows. Between the check and the system call, building, encoding and encrypting the request take some hundred
microseconds. A process that is stopped just then sends the request when it continues, however much later: without
a second check, one in eight leaders that were stopped while writing did so. So the sockets (`sockets`) check
again, at the last moment before bytes leave.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any

from aiohappyeyeballs import AddrInfoType

from parley.kube.client import Call, Client, OutcomeUnknown
from parley.kube.lease import LeaseElector
from parley.kube.transport import Transport


class LeasedClient(Client):
    """A client around another one. Reads pass; a write without a valid lease raises LeaseLost and is not sent.

    A write that takes longer than the lease allows raises OutcomeUnknown. Over HTTP, wrap
    `client.fenced(elector.held)`, whose sockets check as well.
    """

    def __init__(self, transport: Transport, elector: LeaseElector) -> None:
        super().__init__(transport)
        self._elector = elector

    def check_lease(self) -> None:
        """Raises LeaseLost unless the lease is held."""
        self._elector.check()

    async def request(self, call: Call) -> bytes:
        """Passes on reads, and writes while the lease is held."""
        if not call.writes:
            return await super().request(call)
        self.check_lease()
        seconds = self._elector.times.write_seconds
        try:
            async with asyncio.timeout(seconds):
                return await super().request(call)
        except TimeoutError as error:
            self._elector.write_lost()
            raise OutcomeUnknown(
                f"no answer within the {seconds:g} s that the lease leaves for a write"
            ) from error
        except (OutcomeUnknown, asyncio.CancelledError):
            self._elector.write_lost()
            raise


class FenceClosed(ConnectionAbortedError):
    """Raised instead of sending; it breaks the connection."""


class FencedSocket(socket.socket):
    """A socket that sends only while `may_send()` is true. asyncio's stream transports use only these methods."""

    may_send: Callable[[], bool]

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Sends as any socket does. Raises FenceClosed if nothing may be sent."""
        self._check()
        return super().send(data, flags)

    def sendmsg(self, buffers: Iterable[Any], *rest: Any) -> int:
        """The same as `send`, for several buffers."""
        self._check()
        return super().sendmsg(buffers, *rest)

    def _check(self) -> None:
        if not self.may_send():
            raise FenceClosed("no longer allowed to send, and not sent")


def sockets(may_send: Callable[[], bool]) -> Callable[[AddrInfoType], socket.socket]:
    """A socket factory for a connector: its sockets send only while `may_send()` is true."""

    def make(address: AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        made = FencedSocket(family, kind, protocol)
        made.may_send = may_send
        return made

    return make
