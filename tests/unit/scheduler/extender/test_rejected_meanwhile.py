"""A pod that standalone drivers are asked about, while one of its claims is just being made anew."""

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


@pytest.mark.parametrize("topics", [(("claim", "default", "scanner"),), ()], ids=["named", "generated"])
def test_it_is_looked_at_again_when_the_claim_is_there(topics: tuple[Topic, ...]) -> None:
    """Its scheduler is told the same whenever it asks. Of a generated claim the pod hears by itself."""
    pods = cast(Any, SimpleNamespace(requeue=lambda key, after=0.0: None))
    rejections = Rejections(pods, cast(Any, None), never, never, never, cast(Any, never), cast(Any, never))
    asked_first = Problem(reasons.WAITING_FOR_DRIVERS, "the driver is asked first", ())
    rejections.add(POD, Rejection(frozenset({"a"}), b"", asked_first, (), standalone=True))
    missing = Problem(reasons.CLAIM_NOT_FOUND, "it is being recreated", topics, transient=True)
    claims = [PodClaim("scanner", "scanner", problem=missing)]

    result = asyncio.run(rejections.reconcile(KEY, POD, claims))

    assert isinstance(result, Wait) if topics else result is None
    assert not isinstance(result, Wait) or tuple(result.topics) == topics
