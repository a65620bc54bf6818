"""A rejected pod one of whose claims is just being recreated."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parley.api import reasons
from parley.api.builtin import ObjectMeta, Pod
from parley.control.claims.podclaims import PodClaim, Problem
from parley.negotiation.waiting import Topic
from parley.scheduler.extender.rejections import Rejection, Rejections
from parley.scheduler.result import Wait

KEY = ("default", "p")
POD = Pod(metadata=ObjectMeta(namespace="default", name="p", uid="uid-p"))


async def never(*_: object) -> Any:
    raise AssertionError("nobody is to be asked")


async def no_room(*_: object) -> None:
    """No pods can be evicted."""


ASKED_FIRST = Problem(reasons.WAITING_FOR_DRIVERS, "the driver is asked first", ())
PAUSED = Problem(reasons.ALLOCATION_FAILED, "it is tried again after a pause", ())


@pytest.mark.parametrize("paused", [False, True], ids=["standalone driver asked", "allocation failed"])
@pytest.mark.parametrize("topics", [(("claim", "default", "scanner"),), ()], ids=["named", "generated"])
def test_it_is_reconciled_when_the_claim_is_there(topics: tuple[Topic, ...], paused: bool) -> None:
    """Until then the scheduler gets the same answer whenever it asks. A generated claim is in the pod's status."""
    pods = cast(Any, SimpleNamespace(requeue=lambda key, after=0.0: None, revision=lambda topics: ()))
    rejections = Rejections(pods, cast(Any, None), never, never, no_room, cast(Any, never), cast(Any, never))
    rejection = Rejection(frozenset({"a"}), b"", ASKED_FIRST, (), standalone=True)
    if paused:
        rejection = Rejection(frozenset({"a"}), b"", PAUSED, (), until=1e9, reported=PAUSED)
    rejections.add(POD, rejection)
    missing = Problem(reasons.CLAIM_NOT_FOUND, "it is being recreated", topics, transient=True)
    claims = [PodClaim("scanner", "scanner", problem=missing)]

    result = asyncio.run(rejections.reconcile(KEY, POD, claims))

    assert isinstance(result, Wait) if topics else result is None
    assert not isinstance(result, Wait) or tuple(result.topics) == topics
