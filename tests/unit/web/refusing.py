"""A client that is refused what a test says, and counts what it asks for."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

from parley.kube.client import Call, Client, Forbidden, RawEvent

T = TypeVar("T")

Refuse = Callable[[Call], Exception | None]


def nothing(_: Call) -> Exception | None:
    """No call is refused."""
    return None


def forbidden(call: Call) -> Exception:
    """What a server without the right for it says."""
    where = f"in namespace {call.namespace}" if call.namespace else "at the cluster scope"
    return Forbidden(403, "Forbidden", f"{call.resource.plural} is forbidden {where}")


class Refusing(Client):
    """`refuse` can be changed at any time; `asked` counts requests by verb and kind."""

    def __init__(self, client: Client, refuse: Refuse = nothing) -> None:
        super().__init__(client)
        self.refuse = refuse
        self.asked: Counter[str] = Counter()
        self.watching = 0

    async def request(self, call: Call) -> bytes:
        self.asked[f"{call.verb} {call.resource.path()}"] += 1
        if error := self.refuse(call):
            raise error
        return await super().request(call)

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        self.asked[f"watch {call.resource.path()}"] += 1
        if error := self.refuse(call):
            raise error
        self.watching += 1
        try:
            async for event in super().stream(call):
                if error := self.refuse(call):
                    raise error
                yield event
        finally:
            self.watching -= 1
