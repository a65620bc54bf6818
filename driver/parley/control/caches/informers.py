"""The controller's informers: one for each kind that it reads, some of which begin when they are first wanted, and
one for each kind that drivers observe. Does not depend on the objects' content.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from parley.api.resources import RESOURCE_SLICES, Resource
from parley.control.caches import kept
from parley.control.caches.wanted import WantedInformer
from parley.kube.client import Client, Tombstone
from parley.kube.informer import Informer, OnChange, Selection

T = TypeVar("T")

OnUndecodable = Callable[[Resource[Any], Tombstone], None]
"""Called with each object that can't be decoded, and its kind."""


class ControllerInformers:
    """The informers of the controller, added one by one, and run together. They begin in the order in which they
    were added."""

    def __init__(self, client: Client, on_undecodable: OnUndecodable) -> None:
        self._client = client
        self._on_undecodable = on_undecodable
        self._always: list[Informer[Any]] = []
        self._wanted: list[WantedInformer[Any]] = []
        self._observers: dict[Resource[Any], list[OnChange[Any]]] = {}

    def add(
        self,
        resource: Resource[T],
        on_change: OnChange[T],
        transform: Callable[[T], T] | None = None,
        label_selector: str = "",
    ) -> Informer[T]:
        """Add an informer that runs from the beginning."""
        informer = self._new_informer(resource, on_change, transform, label_selector)
        self._always.append(informer)
        return informer

    def add_wanted(
        self, resource: Resource[T], on_change: OnChange[T], transform: Callable[[T], T]
    ) -> WantedInformer[T]:
        """Add an informer that runs from when it is first wanted."""
        wanted = WantedInformer(self._new_informer(resource, on_change, transform))
        self._wanted.append(wanted)
        return wanted

    def _new_informer(
        self,
        resource: Resource[T],
        on_change: OnChange[T],
        transform: Callable[[T], T] | None,
        label_selector: str = "",
    ) -> Informer[T]:
        return Informer(
            self._client,
            resource,
            Selection(label_selector=label_selector),
            on_change=on_change,
            on_tombstone=lambda stone: self._on_undecodable(resource, stone),
            transform=transform,
        )

    def observe(self, resource: Resource[Any], on_change: OnChange[Any]) -> None:
        """Call `on_change` with changes of the kind, after earlier observers. Call before `run`."""
        if (observers := self._observers.get(resource)) is not None:
            observers.append(on_change)
            return
        self._observers[resource] = [on_change]
        transform = kept.resource_slice if resource == RESOURCE_SLICES else None
        self.add(resource, lambda old, new: self.observed(resource, old, new), transform)

    def share(self, resource: Resource[Any]) -> None:
        """Let observers of the kind share its informer, whose event handler has to call `observed`."""
        self._observers[resource] = []

    def observed(self, resource: Resource[Any], old: Any, new: Any) -> None:
        """Notify the kind's observers of a changed object."""
        for on_change in self._observers[resource]:
            on_change(old, new)

    @property
    def always(self) -> Sequence[Informer[Any]]:
        """The informers that run from the beginning."""
        return self._always

    async def run(self) -> None:
        """Run the informers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._always:
                tasks.create_task(informer.run())
            for wanted in self._wanted:
                tasks.create_task(wanted.run())

    async def synced(self) -> None:
        """Wait until every kind that is read by now was listed once."""
        for informer in self._always:
            await informer.synced.wait()
        for wanted in self._wanted:
            await wanted.synced()
