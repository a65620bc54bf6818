"""Mirrors that the API server refused to have made, in its words: what pods wait for then is no matter of moments.

In memory: after a restart each is tried again, and refused again.
"""

from parley.api.models import ResourceClaim, ResourceClaimTemplate
from parley.kube.cache import Key

Mirrored = ResourceClaim | ResourceClaimTemplate


class Refusals:
    """By kind and name of the object whose mirror was refused."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, Key], str] = {}

    def note(self, item: Mirrored, words: str) -> bool:
        """The server refused the mirror; returns whether that is news."""
        place = (item.kind, (item.metadata.namespace, item.metadata.name))
        known = self._words.get(place)
        self._words[place] = words
        return known != words

    def clear(self, kind: str, key: Key) -> None:
        """The mirror was made, or is not wanted any more."""
        self._words.pop((kind, key), None)

    def of(self, kind: str, key: Key) -> str:
        """Why there is no mirror, "" if none was refused."""
        return self._words.get((kind, key), "")
