"""A client between the driver and the API server: records the driver's writes, and can refuse them.

It refuses writes with 503, as a busy server does, and forbids calls that the driver's account is not allowed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from parley.api.names import GROUP
from parley.api.resources import Resource
from parley.kube.client import Call, Client, Forbidden, ServerError

Json = Mapping[str, Any]

_ALLOWED_VERBS: Final = frozenset({"get", "list", "watch", "patch"})
"""The verbs that the ClusterRole `parley-driver` allows for Parley's kinds."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write of the driver: the call, and the object after it, None if the server refused it."""

    call: Call
    after: Json | None

    def is_about(self, resource: Resource[Any], namespace: str, name: str) -> bool:
        """Whether it is about that object, or one of its subresources."""
        return self.call.resource.plural == resource.plural and (self.call.namespace, self.call.name) == (
            namespace,
            name,
        )


def never(_: Call) -> bool:
    """The value of `refuse` that refuses nothing."""
    return False


class DriverTraffic(Client):
    """A client around that of the API server. `refuse` says which writes get a 503; `refused` counts these."""

    refuse: Callable[[Call], bool] = staticmethod(never)
    refused = 0

    def __init__(self, transport: Client) -> None:
        super().__init__(transport)
        self.writes: list[Write] = []

    async def request(self, call: Call) -> bytes:
        """Forward the call, unless it is to be refused."""
        if call.resource.group == GROUP and call.verb not in _ALLOWED_VERBS:
            raise Forbidden(
                403,
                "Forbidden",
                f"{call}: a driver's account may patch {call.resource.plural}, and not {call.verb} them: "
                'see "Your account" in docs/driver-protocol.md',
            )
        if not call.writes or call.resource.group != GROUP:
            return await super().request(call)
        if self.refuse(call):
            self.refused += 1
            raise ServerError(503, "ServiceUnavailable", "the conformance kit refuses this write for a while")
        try:
            content = await super().request(call)
        except Exception:
            self.writes.append(Write(call, None))
            raise
        self.writes.append(Write(call, orjson.loads(content)))
        return content

    def writes_to(self, resource: Resource[Any], namespace: str, name: str) -> list[Write]:
        """The driver's writes to that object, in their order."""
        return [write for write in self.writes if write.is_about(resource, namespace, name)]

    def end_refusals(self) -> None:
        """Refuse no more writes, and reset the counter."""
        self.refuse = never
        self.refused = 0
