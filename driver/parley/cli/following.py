"""`--watch`: the same answer again whenever the cluster has changed, as long as the command runs."""

import asyncio
from collections.abc import Awaitable, Callable

from parley.explain.reading import World
from parley.kube.client import Client
from parley.web.worlds import IDLE, Worlds

_ASK_AT_LEAST = IDLE / 2
"""Seconds: nothing is watched any more for who does not ask for longer."""


async def follow(client: Client, namespace: str, show: Callable[[World], Awaitable[None]]) -> None:
    """Show the cluster, and show it again after every change, at most once a second; until cancelled.

    `namespace` is read where the client may not read all. Raises Unanswerable.
    """
    worlds = Worlds(client, namespace)
    try:
        while True:
            revision = worlds.revision
            await show(await worlds.world())
            try:
                await asyncio.wait_for(worlds.changed(revision), _ASK_AT_LEAST)
            except TimeoutError:
                pass  # nothing has changed
    finally:
        await worlds.close()
