"""Mirrors that the API server refused to create, with its message: the pods that wait for one report why.

In memory: after a restart each is tried again, and refused again.
"""

from parley.api.models import ResourceClaim, ResourceClaimTemplate
from parley.kube.cache import Key

Mirrored = ResourceClaim | ResourceClaimTemplate


class Refusals:
    """By kind and name of the object whose mirror was refused."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, Key], str] = {}

    def note(self, item: Mirrored, message: str) -> bool:
        """The server refused the mirror; returns whether that is a change."""
        place = (item.kind, (item.metadata.namespace, item.metadata.name))
        known = self._messages.get(place)
        self._messages[place] = message
        return known != message

    def clear(self, kind: str, key: Key) -> None:
        """The mirror was made, or is not wanted any more."""
        self._messages.pop((kind, key), None)

    def of(self, kind: str, key: Key) -> str:
        """Why there is no mirror, "" if none was refused."""
        return self._messages.get((kind, key), "")
