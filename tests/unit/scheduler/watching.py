"""Looks for a device that two claims hold."""

import asyncio
from typing import Any

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.control.objects.mirror import allocated, driver_of
from parley.kube.client import Client
from parley.kube.informer import Informer


class Watcher:
    """Looks at every state that the API ever shows, and remembers what must never be."""

    def __init__(self, client: Client) -> None:
        self.faults: list[str] = []
        self._claims: dict[str, BuiltinClaim] = {}
        self._informer = Informer(client, BUILTIN_CLAIMS, on_change=self._changed)
        self._pods = Informer(client, PODS)
        self.tasks = [asyncio.create_task(part.run()) for part in (self._pods, self._informer)]

    def _changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        if old is not None:
            self._claims.pop(old.metadata.uid, None)
        if new is not None:
            self._claims[new.metadata.uid] = new
        held: dict[Any, str] = {}
        for claim in self._claims.values():
            for device in self._in_use(claim):
                if other := held.get(device):
                    self.faults.append(f"{device} is held by {other} and by {claim.metadata.name}")
                held[device] = claim.metadata.name

    def _in_use(self, claim: BuiltinClaim) -> tuple[Any, ...]:
        """What the claim holds, as long as a pod of its is there that has not ended."""
        if claim.status.allocation is None:
            return ()
        users = {user.uid for user in claim.status.reserved_for}
        alive = {p.metadata.uid for p in self._pods.values() if p.status.phase not in ("Succeeded", "Failed")}
        found = allocated(claim, driver_of(claim.status.allocation))
        return found.devices if found is not None and users & alive else ()

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
