"""A client that is refused what a test says, and counts what it asks for."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from parley.kube.around import AroundClient, Call
from parley.kube.client import Client, Forbidden, WatchEvent

T = TypeVar("T")

Refuse = Callable[[Call], Exception | None]


def nothing(_: Call) -> Exception | None:
    """No call is refused."""
    return None


def forbidden(call: Call) -> Exception:
    """What a server without the right for it says."""
    where = f"in namespace {call.namespace}" if call.namespace else "at the cluster scope"
    return Forbidden(403, "Forbidden", f"{call.resource.plural} is forbidden {where}")


class Refusing(AroundClient):
    """`refuse` can be changed at any time; `asked` counts requests by verb and kind."""

    def __init__(self, client: Client, refuse: Refuse = nothing) -> None:
        super().__init__(client)
        self.refuse = refuse
        self.asked: Counter[str] = Counter()
        self.watching = 0

    async def read(self, call: Call, request: Callable[[], Awaitable[T]]) -> T:
        self.asked[f"{call.verb} {call.resource.path()}"] += 1
        if error := self.refuse(call):
            raise error
        return await request()

    async def follow(
        self, call: Call, request: Callable[[], AsyncIterator[WatchEvent[Any]]]
    ) -> AsyncIterator[WatchEvent[Any]]:
        self.asked[f"watch {call.resource.path()}"] += 1
        if error := self.refuse(call):
            raise error
        self.watching += 1
        try:
            async for event in request():
                if error := self.refuse(call):
                    raise error
                yield event
        finally:
            self.watching -= 1
