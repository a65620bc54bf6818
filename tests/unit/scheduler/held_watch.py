"""A controller whose watch of one kind is held back for a while."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from parley.api.resources import Resource
from parley.kube.client import Call, Client, RawEvent


class HeldWatch(Client):
    """Holds back what the watch of `resource` shows while `open` is not set; then all of it is seen at once."""

    def __init__(self, client: Client, resource: Resource[Any]) -> None:
        super().__init__(client)
        self._resource = resource
        self.open = asyncio.Event()
        self.open.set()

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            if call.resource == self._resource:
                await self.open.wait()
            yield event
