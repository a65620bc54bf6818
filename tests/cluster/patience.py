"""A client for a test that goes on while its API server is down, busy or just starting.

Every call is repeated until the server has answered it. A write that was repeated may have happened before: what
then is there already, or gone already, is the test's own. What a watch loses is for its caller to list anew.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from parley.kube.around import AroundClient, Call
from parley.kube.client import (
    AlreadyExists,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    WatchEvent,
)

T = TypeVar("T")

_PAUSE = 0.2
_STARTING = "not yet ready to handle request"  # what admission says until its caches are filled


class PatientClient(AroundClient):
    """Raises only what the server refused for good."""

    async def read(self, call: Call, request: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await request()
            except (OutcomeUnknown, ServerError, TooManyRequests):
                await asyncio.sleep(_PAUSE)

    async def write(self, call: Call, request: Callable[[], Awaitable[Any]]) -> Any:
        repeated = False
        while True:
            try:
                return await request()
            except (OutcomeUnknown, ServerError, TooManyRequests):
                await asyncio.sleep(_PAUSE)
            except Forbidden as error:
                if _STARTING not in error.message:
                    raise
                await asyncio.sleep(_PAUSE)
            except AlreadyExists:
                if not repeated:
                    raise
                return await self.get(call.resource, call.name, call.namespace)
            except NotFound:
                if not repeated or call.verb != "delete":
                    raise
                return None
            repeated = True

    async def follow(
        self, call: Call, request: Callable[[], AsyncIterator[WatchEvent[T]]]
    ) -> AsyncIterator[WatchEvent[T]]:
        try:
            async for event in request():
                yield event
        except (ServerError, TooManyRequests) as error:
            raise OutcomeUnknown(f"{call}: {error}") from error
