"""The pods of another namespace, which come and go while a hostile user does what it can.

Each pod with a claim comes together with one that has none: what both wait for, an API server or a machine with
too much to do, is not Parley's. What counts is how much later the one with the claim is bound.
"""

import asyncio
from itertools import count

from tests.cluster.load import Bindings
from tests.cluster.manifests import pod
from tests.cluster.namespace import Namespace, end_pod

_BOUND_WITHIN = 120.0


class Bystanders:
    """Runs until cancelled; `lateness` has the seconds of each pair so far."""

    def __init__(self, team: Namespace, bindings: Bindings, template: str) -> None:
        self._team = team
        self._bindings = bindings
        self._template = template
        self.lateness: list[float] = []

    async def run(self) -> None:
        """One pair after the other. Raises AssertionError when one is not bound at all."""
        for number in count():
            asking, plain = f"asking-{number}", f"plain-{number}"
            await asyncio.gather(
                self._team.create(pod(asking, templates={"gpu": self._template})),
                self._team.create(pod(plain)),
            )
            await self._bindings.all_of((asking, plain), within=_BOUND_WITHIN)
            self.lateness.append(self._bindings.seen[asking] - self._bindings.seen[plain])
            await asyncio.gather(*(end_pod(self._team.client, self._team.name, name) for name in (asking, plain)))
