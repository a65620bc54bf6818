"""Clients for tests: one that waits for a busy API server, one that goes on while its server is down or starting.

With the second, every call is repeated until the server has answered it. A write that was repeated may have
happened before: what then is there already, or gone already, is the test's own. What a watch loses is for its
caller to list anew.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TypeVar

from parley.kube.client import (
    AlreadyExists,
    Call,
    Client,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    RawEvent,
    ServerError,
    TooManyRequests,
)
from parley.kube.http import HttpClient, HttpOptions

T = TypeVar("T")

_PAUSE = 0.2
_STARTING = "not yet ready to handle request"  # what admission says until its caches are filled


def patient(kubeconfig: Path | str) -> HttpClient:
    """Waits two minutes for an answer: the product's ten seconds are short where everything runs at once."""
    return HttpClient.from_kubeconfig(str(kubeconfig), options=HttpOptions(timeout=120.0, list_timeout=120.0))


class PatientClient(Client):
    """Raises only what the server refused for good."""

    async def request(self, call: Call) -> bytes:
        repeated = False
        while True:
            try:
                return await super().request(call)
            except (OutcomeUnknown, ServerError, TooManyRequests):
                await asyncio.sleep(_PAUSE)
            except Forbidden as error:
                if not call.writes or _STARTING not in error.message:
                    raise
                await asyncio.sleep(_PAUSE)
            except AlreadyExists:
                if not repeated:
                    raise
                return await self.request(Call("get", call.resource, call.namespace, call.name))
            except NotFound:
                if not repeated or call.verb != "delete":
                    raise
                return b""
            repeated = True

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        try:
            async for event in super().stream(call):
                yield event
        except (ServerError, TooManyRequests) as error:
            raise OutcomeUnknown(f"{call}: {error}") from error
