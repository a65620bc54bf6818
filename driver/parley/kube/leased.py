"""A client that writes only while the lease is held, and never for longer than the lease allows for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from parley.kube.around import AroundClient, Call
from parley.kube.client import Client, OutcomeUnknown
from parley.kube.lease import LeaseElector

T = TypeVar("T")


class LeasedClient(AroundClient):
    """A `Client` around another one. Reads pass; a write without a valid lease raises LeaseLost and is not sent.

    A write that takes longer than the lease allows is given up with OutcomeUnknown. Over HTTP, give it
    `client.fenced(elector.held)`: that closes the gap between the check here and the sending.
    """

    def __init__(self, client: Client, elector: LeaseElector) -> None:
        super().__init__(client)
        self._elector = elector

    async def write(self, call: Call, request: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - all alike
        self._elector.check()
        seconds = self._elector.times.write_seconds
        try:
            async with asyncio.timeout(seconds):
                return await request()
        except TimeoutError as error:
            self._elector.write_lost()
            raise OutcomeUnknown(
                f"no answer within the {seconds:g} s that the lease leaves for a write"
            ) from error
        except (OutcomeUnknown, asyncio.CancelledError):
            self._elector.write_lost()
            raise
