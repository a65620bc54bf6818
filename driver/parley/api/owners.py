"""Limits the owner references that are read of one object. Pure.

Parley needs the controller, and the owner that it set itself when it created the object. Users can add thousands.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

MAX_OWNERS: Final = 16


class Owner(Protocol):
    """An owner reference of Parley's kinds or of Kubernetes'."""

    @property
    def controller(self) -> bool: ...


T = TypeVar("T", bound=Owner)


def few_owners(owners: Sequence[T]) -> Sequence[T]:
    """The owners; if there are more than `MAX_OWNERS`, the controller and the first others."""
    if len(owners) <= MAX_OWNERS:
        return owners
    return tuple(sorted(owners, key=lambda owner: not owner.controller)[:MAX_OWNERS])
