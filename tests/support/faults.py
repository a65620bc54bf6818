"""Faults on demand: a client around a client, for tests that kill or cut a controller at a given call.

    client = FaultClient(server.client(), before=kill_at(3, Killed()))      # dies instead of the third write
    client = FaultClient(server.client(), after=kill_at(3, Killed()))       # the third write happens, unheard

The hooks may raise anything, a BaseException for the death of the process included. Loops over all writes of a
scenario run it once without a fault and take `writes` as the number of places to die at. Faults by chance are
`trouble`.
"""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, fields

from parley.kube.client import Call, Client, RawEvent
from parley.kube.transport import Transport


@dataclass(frozen=True, slots=True)
class NumberedCall(Call):
    """A call with its number among the writes, from 1 on; 0 for what reads."""

    write: int = 0

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name, self.subresource) if part)
        number = f"write {self.write}: " if self.write else ""
        return f"{number}{self.verb} {self.resource.plural} {place}".rstrip()


Hook = Callable[[NumberedCall], None]


def nothing(_: NumberedCall) -> None:
    """The hook that lets every call pass."""


def kill_at(write: int, error: BaseException) -> Hook:
    """A hook that raises `error` at the write of that number."""

    def raise_at(call: NumberedCall) -> None:
        if call.write == write:
            raise error

    return raise_at


class FaultClient(Client):
    """Calls `before` ahead of each call and `after` once the server did it, with the same `Call`.

    What `before` raises comes instead of the call; what `after` raises comes instead of its answer. A watch is
    one call, made when it is first waited for, and `after` is called when it ends by itself.
    """

    def __init__(self, transport: Transport, *, before: Hook = nothing, after: Hook = nothing) -> None:
        super().__init__(transport)
        self._before = before
        self._after = after
        self.calls: list[NumberedCall] = []
        """All calls so far, refused ones included."""
        self._writes = 0

    @property
    def writes(self) -> int:
        """How many writes were asked for so far."""
        return self._writes

    async def request(self, call: Call) -> bytes:
        numbered = self._begin(call)
        answer = await super().request(call)
        self._after(numbered)
        return answer

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        numbered = self._begin(call)
        async for event in super().stream(call):
            yield event
        self._after(numbered)

    def _begin(self, call: Call) -> NumberedCall:
        self._writes += call.writes
        known = {part.name: getattr(call, part.name) for part in fields(call)}
        numbered = NumberedCall(**{**known, "write": self._writes if call.writes else 0})
        self.calls.append(numbered)
        self._before(numbered)
        return numbered
