"""Finds at the start what earlier runs left in the checkpoint for claims that nobody can use any more.

The kubelet requests to unprepare whatever it once requested to prepare, unless it lost its own state, the pod was
removed while the machine was down, or the claim was deleted under it. Decides what may be released without being
asked:

    claim as it was                                 left alone
    claim gone, or another of its name, or nobody's,
    or allocated on other nodes
        never fully prepared, or in an earlier
        boot of the machine                         no container has it: released
        prepared in this boot                       a container may still have it: left to the kubelet, with a
                                                    line in the log
"""

import asyncio
from typing import Final

import structlog

from parley.api.resources import BUILTIN_CLAIMS
from parley.kube.backoff import Backoff
from parley.kube.client import Client, NotFound
from parley_kubelet.claims.handle import is_elsewhere
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.state.checkpoint import CheckpointEntry, CheckpointError

RETRIES: Final = Backoff(first=2.0, longest=120.0, jitter=0.3)

log = structlog.get_logger(__name__)


async def clean(preparation: Preparation, client: Client) -> None:
    """Look at everything that is held, until each entry is seen to."""
    failures = 0
    while not await _cleaned(preparation, client):
        failures += 1
        await asyncio.sleep(RETRIES.delay(failures))


async def _cleaned(preparation: Preparation, client: Client) -> bool:
    try:
        entries = await preparation.entries()
    except (CheckpointError, OSError) as error:
        log.warning("no search for orphans", driver=preparation.driver.name, reason=str(error))
        return False
    return all([await _seen_to(entry, preparation, client) for entry in entries.values()])


async def _seen_to(entry: CheckpointEntry, preparation: Preparation, client: Client) -> bool:
    about = {"driver": preparation.driver.name, "claim": entry.full_name, "uid": entry.uid}
    try:
        if not await _is_orphan(entry, preparation.driver.node, client):
            return True
        if entry.phase == "prepared" and entry.boot in (preparation.boot, ""):
            log.warning("claim is gone but prepared: left until the kubelet unprepares it", **about)
            return True
        if await preparation.unprepare_orphan(entry):
            log.warning("orphaned claim unprepared", phase=entry.phase, **about)
    except Exception as error:
        log.warning("orphan not handled", reason=f"{type(error).__name__}: {error}", **about)
        return False
    return True


async def _is_orphan(entry: CheckpointEntry, node: str, client: Client) -> bool:
    """Whether no pod can be given the claim here any more."""
    try:
        claim = await client.get(BUILTIN_CLAIMS, entry.name, entry.namespace)
    except NotFound:
        return True
    return claim.metadata.uid != entry.uid or not claim.status.reserved_for or is_elsewhere(claim, node)
