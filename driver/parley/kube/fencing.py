"""No write leaves a process that may have lost its lease.

`LeasedClient` checks with the elector before each write, and gives up one that takes longer than the lease allows.
Between its check and the system call lie some hundred microseconds of building, encoding and encrypting the
request. A process that is stopped just there sends it when it wakes, however much later: with checks ahead of each
write only, one in eight leaders that were stopped while writing did so. So the sockets (`sockets`) ask once more,
at the last moment before bytes leave.
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

    A write that takes longer than the lease allows is given up with OutcomeUnknown. Over HTTP, give it
    `client.fenced(elector.held)`, whose sockets ask too.
    """

    def __init__(self, transport: Transport, elector: LeaseElector) -> None:
        super().__init__(transport)
        self._elector = elector

    def check_lease(self) -> None:
        """Raises LeaseLost."""
        self._elector.check()

    async def request(self, call: Call) -> bytes:
        """Pass on what reads, and what writes only while that is allowed."""
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
    """Raised in place of sending; it breaks the connection."""


class FencedSocket(socket.socket):
    """Sends while `may_send()` is true. Stream transports of asyncio use these two ways to send only."""

    may_send: Callable[[], bool]

    def send(self, data: Any, flags: int = 0, /) -> int:
        """As of any socket. Raises FenceClosed where nothing may be sent."""
        self._check()
        return super().send(data, flags)

    def sendmsg(self, buffers: Iterable[Any], *rest: Any) -> int:
        """As `send`."""
        self._check()
        return super().sendmsg(buffers, *rest)

    def _check(self) -> None:
        if not self.may_send():
            raise FenceClosed("no longer allowed to send, and not sent")


def sockets(may_send: Callable[[], bool]) -> Callable[[AddrInfoType], socket.socket]:
    """Makes the sockets of a connector."""

    def make(address: AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        made = FencedSocket(family, kind, protocol)
        made.may_send = may_send
        return made

    return make
