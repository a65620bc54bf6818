"""Events of events.k8s.io as Parley's processes write them: what each is about, and its body."""

from dataclasses import dataclass
from typing import Any, Final

_NOTE_BYTES: Final = 1024
"""The API server takes no longer note."""

_NAME_LENGTH: Final = 200
"""Of the object's name in the event's; the server adds to it, and takes 253 in all."""

_LOG_FIELDS: Final = {"Pod": "pod", "ResourceClaim": "claim", "ResourceClaimTemplate": "template"}


@dataclass(frozen=True, slots=True)
class About:
    """The object that an event is about."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str

    @property
    def place(self) -> str:
        """The namespace of events about it: those about objects without one are in `default`."""
        return self.namespace or "default"

    def wire(self) -> dict[str, str]:
        """As an event's `regarding`."""
        named = {"kind": self.kind, "namespace": self.namespace, "name": self.name, "uid": self.uid}
        return {"apiVersion": self.api_version, **named}

    def fields(self) -> dict[str, str]:
        """As in a log entry: {"pod": "team/a"}."""
        return {_LOG_FIELDS.get(self.kind, "object"): "/".join(filter(None, (self.namespace, self.name)))}


@dataclass(frozen=True, slots=True)
class Source:
    """Who writes an event: the program, this copy of it, and what it does."""

    controller: str
    instance: str
    action: str


def warning(about: About, source: Source, reason: str, note: str, time: str) -> dict[str, Any]:
    """The body of an event of type Warning at that time (RFC 3339, microseconds)."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about.name[:_NAME_LENGTH]}-", "namespace": about.place},
        "eventTime": time,
        "reportingController": source.controller,
        "reportingInstance": source.instance,
        "action": source.action,
        "reason": reason,
        "note": note.encode(errors="backslashreplace")[:_NOTE_BYTES].decode(errors="ignore"),
        "type": "Warning",
        "regarding": about.wire(),
    }
