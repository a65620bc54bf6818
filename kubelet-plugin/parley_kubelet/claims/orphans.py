"""Releases orphans at startup: claims in the checkpoint, or in the driver's own records if the checkpoint was
lost, that no pod can use any more.

The kubelet calls unprepare for every claim that it prepared, unless it lost its own state, the pod was removed
while the machine was down, or the claim was deleted before. Decides what may be released without such a call:

    claim exists, reserved for pods, on this node   left alone
    claim deleted, its pod still runs with the
    allocation, and the driver has data for it      left alone: the recreated claim has the same data
    claim deleted, or recreated, or reserved for no
    pod, or allocated on other nodes
        never fully prepared, or in an earlier
        boot of the machine                         no container has it: released
        not in the checkpoint                       released: a container that still ends loses what only it had
        prepared in this boot                       a container may still have it: left to the kubelet, with a
                                                    line in the log

A ClaimRelease shows that a pod still runs with the allocation of a claim that somebody deleted (`spec.running`).
"""

import asyncio
from typing import Final

import structlog

from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES
from parley.kube.backoff import Backoff
from parley.kube.client import Client, NotFound
from parley_kubelet.claims.handle import is_on_other_nodes
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.state.checkpoint import CheckpointEntry, CheckpointError

RETRIES: Final = Backoff(first=2.0, longest=120.0, jitter=0.3)

log = structlog.get_logger(__name__)


async def release_orphans(preparation: Preparation, client: Client) -> None:
    """Release all orphans; retries until each held claim has been checked."""
    failures = 0
    while not await _release_all(preparation, client):
        failures += 1
        await asyncio.sleep(RETRIES.delay(failures))


async def _release_all(preparation: Preparation, client: Client) -> bool:
    try:
        entries = await preparation.entries()
    except (CheckpointError, OSError) as error:
        log.warning("no search for orphans", driver=preparation.driver.name, reason=str(error))
        return False
    try:
        left = {one.uid: ClaimName(one.namespace, one.name, one.uid) for one in await preparation.left()}
    except Exception as error:
        log.warning("no search for what a lost checkpoint left", driver=preparation.driver.name, reason=str(error))
        return False
    held = {entry.uid: ClaimName(entry.namespace, entry.name, entry.uid) for entry in entries.values()}
    return all(
        [
            await _release_if_orphan(claim, entries.get(uid), preparation, client, has_data=uid in left)
            for uid, claim in (left | held).items()
        ]
    )


async def _release_if_orphan(
    claim: ClaimName, entry: CheckpointEntry | None, preparation: Preparation, client: Client, *, has_data: bool
) -> bool:
    about = {"driver": preparation.driver.name, "claim": str(claim), "uid": claim.uid}
    try:
        if not await _is_orphan(claim, preparation.driver.node, client):
            return True
        if entry is not None and entry.phase == "prepared" and entry.boot in (preparation.boot, ""):
            log.warning("claim is gone but prepared: left until the kubelet unprepares it", **about)
            return True
        if has_data and await _is_still_used(claim, preparation.driver.node, client):
            log.warning("claim is gone but its pod runs: left until the kubelet unprepares it", **about)
            return True
        if await preparation.unprepare_orphan(claim, entry):
            phase = entry.phase if entry is not None else "lost"
            log.warning("orphaned claim unprepared", phase=phase, **about)
    except Exception as error:
        log.warning("orphan not handled", reason=f"{type(error).__name__}: {error}", **about)
        return False
    return True


async def _is_orphan(claim: ClaimName, node: str, client: Client) -> bool:
    """Whether no pod on this node can use the claim any more."""
    try:
        found = await client.get(BUILTIN_CLAIMS, claim.name, claim.namespace)
    except NotFound:
        return True
    return found.metadata.uid != claim.uid or not found.status.reserved_for or is_on_other_nodes(found, node)


async def _is_still_used(claim: ClaimName, node: str, client: Client) -> bool:
    """Whether a pod on this node still runs with the allocation of the claim, which somebody deleted."""
    releases = (await client.list(CLAIM_RELEASES, field_selector=f"spec.nodeName={node}")).items
    return any(
        release.spec.claim.uid == claim.uid
        and release.spec.running is not None
        and not release.status.allocation_cleared
        for release in releases
    )
