"""Mirrors that the API server refused to create, with its message: the pods that wait for one report why.

In memory: after a restart each is tried again, and refused again.
"""

import re
from typing import Final, NamedTuple

from parley.api.models import ResourceClaim, ResourceClaimTemplate
from parley.kube.cache import Key

Mirrored = ResourceClaim | ResourceClaimTemplate


MAX_MESSAGE: Final = 1024
"""The characters of a message that are kept, as many as in an event."""

_WORD = re.compile(r"\w+")


class _Refusal(NamedTuple):
    """The server's message, shortened, and a hash of its words in any order."""

    message: str
    words: int


class Refusals:
    """The API server's latest message for each claim or template whose mirror it refused, by kind and name of that
    object."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[str, Key], _Refusal] = {}

    def note(self, item: Mirrored, message: str) -> bool:
        """Note that the server refused the mirror; returns whether the message is new. Its words are compared in
        any order: the server lists mistakes in varying order (ValidateLabels in k8s.io/apimachinery ranges over a
        map)."""
        place = (item.kind, (item.metadata.namespace, item.metadata.name))
        refusal = _Refusal(message[:MAX_MESSAGE], hash(tuple(sorted(_WORD.findall(message)))))
        known = self._refusals.get(place)
        if known is not None and known.words == refusal.words:
            return False
        self._refusals[place] = refusal
        return True

    def clear(self, kind: str, key: Key) -> None:
        """Forget the refusal: the mirror was created, or is not wanted any more."""
        self._refusals.pop((kind, key), None)

    def of(self, kind: str, key: Key) -> str:
        """Why the mirror was refused; "" if it was not."""
        refusal = self._refusals.get((kind, key))
        return refusal.message if refusal is not None else ""
