"""Limits the owner references that are read of one object. Pure.

Parley needs the controller, and the owner that it set itself when it created the object. Users can add thousands.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from parley.api.builtin import OwnerReference

MAX_OWNERS: Final = 16


class Owner(Protocol):
    """An owner reference of Parley's kinds or of Kubernetes'."""

    @property
    def controller(self) -> bool: ...


T = TypeVar("T", bound=Owner)

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_owners = msgspec.json.Decoder(list[OwnerReference])


def few_owners(owners: Sequence[T]) -> Sequence[T]:
    """The owners; if there are more than `MAX_OWNERS`, the controller and the first others."""
    if len(owners) <= MAX_OWNERS:
        return owners
    return tuple(sorted(owners, key=lambda owner: not owner.controller)[:MAX_OWNERS])


def with_few_owners(text: bytes) -> bytes:
    """The JSON of an object with `few_owners` of its owner references; unchanged if they can't be read."""
    try:
        whole = _members.decode(text)
        meta = _members.decode(whole["metadata"])
        owners = _owners.decode(meta["ownerReferences"])
    except (ValueError, KeyError, RecursionError):
        return text
    if len(owners) <= MAX_OWNERS:
        return text
    meta["ownerReferences"] = _encoded(few_owners(owners))
    return msgspec.json.encode({**whole, "metadata": _encoded(meta)})


def _encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
