"""Events of events.k8s.io that Parley's processes write: the object that each is about, and its body."""

from dataclasses import dataclass
from typing import Any, Final

_NOTE_BYTES: Final = 1024
"""The most bytes of a note that the API server accepts."""

_NAME_LENGTH: Final = 200
"""The most characters of the object's name in the event's name: the server adds to it, up to 253 in all."""

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
        """The namespace of events about the object: `default` for cluster-scoped objects."""
        return self.namespace or "default"

    def wire(self) -> dict[str, str]:
        """The object as an event's `regarding`."""
        named = {"kind": self.kind, "namespace": self.namespace, "name": self.name, "uid": self.uid}
        return {"apiVersion": self.api_version, **named}

    def fields(self) -> dict[str, str]:
        """The object as fields of a log entry: {"pod": "team/a"}."""
        return {_LOG_FIELDS.get(self.kind, "object"): "/".join(filter(None, (self.namespace, self.name)))}


@dataclass(frozen=True, slots=True)
class Source:
    """The reporter of an event: the program, this instance of it, and the action."""

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
