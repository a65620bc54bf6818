"""Mirrors that the API server refused to create, with its message: the pods that wait for one report why.

In memory: after a restart each is tried again, and refused again.
"""

import re
from typing import Final, NamedTuple

from parley.api.models import ResourceClaim, ResourceClaimTemplate
from parley.kube.cache import Key

Mirrored = ResourceClaim | ResourceClaimTemplate


MAX_MESSAGE: Final = 1024
"""So many characters of a message are kept, as in an event."""

_WORD = re.compile(r"\w+")


class _Refusal(NamedTuple):
    """What the server wrote, in short, and its words in any order."""

    message: str
    words: int


class Refusals:
    """The API server's latest message for each claim or template whose mirror it refused, by kind and name of that
    object."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[str, Key], _Refusal] = {}

    def note(self, item: Mirrored, message: str) -> bool:
        """The server refused the mirror; returns whether that is a change. The order in which it lists mistakes is
        another one each time (ValidateLabels in k8s.io/apimachinery ranges over a map)."""
        place = (item.kind, (item.metadata.namespace, item.metadata.name))
        refusal = _Refusal(message[:MAX_MESSAGE], hash(tuple(sorted(_WORD.findall(message)))))
        known = self._refusals.get(place)
        if known is not None and known.words == refusal.words:
            return False
        self._refusals[place] = refusal
        return True

    def clear(self, kind: str, key: Key) -> None:
        """The mirror was made, or is not wanted any more."""
        self._refusals.pop((kind, key), None)

    def of(self, kind: str, key: Key) -> str:
        """Why there is no mirror, "" if none was refused."""
        refusal = self._refusals.get((kind, key))
        return refusal.message if refusal is not None else ""
