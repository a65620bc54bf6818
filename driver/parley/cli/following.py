"""`--watch`: prints the answer again whenever the cluster has changed, until the command is ended."""

import asyncio
from collections.abc import Awaitable, Callable

import typer

from parley.api.wording import printable
from parley.explain.snapshot import Snapshot
from parley.kube.client import Client
from parley.web.snapshots import IDLE, Snapshots, StillReading

_ASK_AT_LEAST = IDLE / 2
"""Seconds: nothing is watched any more for who does not ask for longer."""


async def follow(client: Client, namespace: str, show: Callable[[Snapshot], Awaitable[None]]) -> None:
    """Show the cluster, and show it again after every change, at most once a second; until cancelled.

    `namespace` is read where the client may not read all. Why what is shown may be old goes to stderr, when that
    changes. Raises Unanswerable.
    """
    snapshots, trouble = Snapshots(client, namespace), ""
    try:
        while True:
            revision = snapshots.revision
            try:
                world = await snapshots.snapshot()
            except StillReading:
                continue  # nobody asked for an answer within seconds
            if snapshots.trouble != trouble:
                trouble = snapshots.trouble
                typer.echo(f"may be old: {printable(trouble)}" if trouble else "up to date again", err=True)
            await show(world)
            try:
                async with asyncio.timeout(_ASK_AT_LEAST):  # wait_for loses an end that comes with a change
                    await snapshots.changed(revision)
            except TimeoutError:
                pass  # nothing has changed
    finally:
        await snapshots.close()
