"""Sockets that ask, at the last moment before bytes leave, whether they still may.

Between the decision to write and the system call lie some hundred microseconds of building, encoding and
encrypting the request. A process that is stopped just there sends it when it wakes, however much later: with
checks ahead of each write only, one in eight leaders that were stopped while writing did so.
What may be sent, and when, is the caller's.
"""

import socket
from collections.abc import Callable, Iterable
from typing import Any

from aiohappyeyeballs import AddrInfoType


class FenceClosed(ConnectionAbortedError):
    """Raised in place of sending; it breaks the connection."""


class FencedSocket(socket.socket):
    """Sends while `may_send()` is true. Stream transports of asyncio use these two ways to send only."""

    may_send: Callable[[], bool]

    def send(self, data: Any, flags: int = 0, /) -> int:
        self._check()
        return super().send(data, flags)

    def sendmsg(self, buffers: Iterable[Any], *rest: Any) -> int:
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
