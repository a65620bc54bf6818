"""Watches every claim of the cluster from beginning to end: no device may ever be two claims' at once.

A generated claim of a pod that is done may still show what it held, because nobody spends a write on clearing
what vanishes by itself. So where two claims show one device, the pods of all but the latest must have ended.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager

from tests.cluster.namespace import devices_of
from tests.cluster.watching import collections

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.control.objects.mirror import is_mirror, is_shareable
from parley.control.objects.pod import is_terminal
from parley.kube.client import Client, NotFound
from parley.sdk import Device


@asynccontextmanager
async def nothing_handed_out_twice(
    client: Client, *, for_many: Collection[str] = ()
) -> AsyncGenerator[None, None]:
    """Fails at the end of the block if a device was handed out twice within it. Those of the names `for_many` are
    left out."""
    watcher = Handouts(client, for_many)
    watching = asyncio.create_task(watcher.run())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    await watcher.look()
    assert not watcher.twice, "\n".join(watcher.twice)
    assert watching.cancelled(), f"the watch of claims ended by itself: {watching}"


class Handouts:
    """Who was seen with which device, in the order in which it was seen."""

    def __init__(self, client: Client, for_many: Collection[str] = ()) -> None:
        self._client = client
        self._for_many = for_many
        self._holders: Mapping[Device, Mapping[str, BuiltinClaim]] = {}
        self.twice: list[str] = []

    async def run(self) -> None:
        """Look at every state of all claims, until cancelled."""
        async with aclosing(collections(self._client, BUILTIN_CLAIMS)) as states:
            async for claims in states:
                await self._judge(claims.values())

    async def look(self) -> None:
        """Look at the present state, which the watch may not have reached."""
        await self._judge((await self._client.list(BUILTIN_CLAIMS)).items)

    async def _judge(self, claims: Iterable[BuiltinClaim]) -> None:
        before, self._holders = self._holders, _holders(claims)
        for device, holding in self._holders.items():
            if device.device in self._for_many:
                continue
            await self._compare(device, before.get(device, {}), holding)

    async def _compare(
        self, device: Device, before: Mapping[str, BuiltinClaim], now: Mapping[str, BuiltinClaim]
    ) -> None:
        newcomers = [claim for uid, claim in now.items() if uid not in before]
        if not newcomers:
            return
        # A newcomer may have no user yet; what was seen before and has none is on its way out.
        fresh = [claim for claim in newcomers if not claim.status.reserved_for or await self._in_use(claim)]
        others = [claim for uid, claim in now.items() if uid in before and await self._in_use(claim)]
        if len(fresh) + len(others) > 1:
            self.twice.append(
                f"{device.pool}/{device.device} was given to {_names(fresh)}, held by {_names(others)}"
            )

    async def _in_use(self, claim: BuiltinClaim) -> bool:
        """Whether a pod that the claim is reserved for still lives."""
        for user in claim.status.reserved_for:
            try:
                pod = await self._client.get(PODS, user.name, claim.metadata.namespace)
            except NotFound:
                continue
            if pod.metadata.uid == user.uid and not is_terminal(pod):
                return True
        return False


def _names(claims: Iterable[BuiltinClaim]) -> str:
    return ", ".join(f"{claim.metadata.namespace}/{claim.metadata.name}" for claim in claims) or "nobody"


def _holders(claims: Iterable[BuiltinClaim]) -> Mapping[Device, Mapping[str, BuiltinClaim]]:
    holders: dict[Device, dict[str, BuiltinClaim]] = {}
    for claim in claims:
        if is_mirror(claim) and is_shareable(claim):
            continue
        for device in devices_of(claim):
            holders.setdefault(device, {})[claim.metadata.uid] = claim
    return holders
