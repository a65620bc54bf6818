"""`--watch`: the same answer again whenever the cluster has changed, as long as the command runs."""

import asyncio
from collections.abc import Awaitable, Callable

from parley.explain.snapshot import Snapshot
from parley.kube.client import Client
from parley.web.snapshots import IDLE, Snapshots

_ASK_AT_LEAST = IDLE / 2
"""Seconds: nothing is watched any more for who does not ask for longer."""


async def follow(client: Client, namespace: str, show: Callable[[Snapshot], Awaitable[None]]) -> None:
    """Show the cluster, and show it again after every change, at most once a second; until cancelled.

    `namespace` is read where the client may not read all. Raises Unanswerable.
    """
    snapshots = Snapshots(client, namespace)
    try:
        while True:
            revision = snapshots.revision
            await show(await snapshots.snapshot())
            try:
                await asyncio.wait_for(snapshots.changed(revision), _ASK_AT_LEAST)
            except TimeoutError:
                pass  # nothing has changed
    finally:
        await snapshots.close()
