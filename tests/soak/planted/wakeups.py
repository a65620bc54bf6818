"""Planted bugs of what is not reconciled: nobody wakes it, or a change or a failure is lost."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.soak.cluster.processes import WHO
from tests.soak.planted.bug import Bug, no_result

from parley.control.immediate import ImmediateClaims
from parley.control.limits import Limits
from parley.kube.informer import Informer
from parley.kube.queue import WorkQueue
from parley.negotiation.waiting import WaitingLines, Woken
from parley.scheduler.changes import Changes
from parley.sdk.reference_reader import ReferenceReader


def _for_parley_only(broken: Callable[..., Any], whole: Callable[..., Any]) -> Callable[..., Any]:
    """Only Parley's controllers run the broken code: Kubernetes' components use the whole one."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (broken if WHO.get().startswith("controller") else whole)(*args, **kwargs)

    return chosen


OF_WAKEUPS: Mapping[str, Bug] = {
    "nobody wakes who waits": Bug(
        (
            (WaitingLines, "wake", lambda _self, _topic: []),
            (WaitingLines, "split_by_help", lambda *_, **__: Woken([], [], [])),
        ),
        ("waits in vain",),
    ),
    "deletions go unseen": Bug(
        ((Informer, "_remove", _for_parley_only(no_result, Informer._remove)),),
        ("left over", "waits in vain", "handed out twice"),
    ),
    "failed work is not repeated": Bug(
        ((WorkQueue, "retry", _for_parley_only(no_result, WorkQueue.retry)),),
        ("left over", "waits in vain", "conditions disagree"),
        network_faults=True,
    ),
    "nobody looks at claims whose node takes no pods any more, or does so again": Bug(
        ((Changes, "_enqueue_claims_on", no_result),),
        ("conditions disagree",),
        immediate_claims=True,
    ),
    "nobody looks at reservation pods that others deleted": Bug(
        ((Changes, "_enqueue_room_of", lambda *_: None),),
        ("room not held", "left over"),
        interference=True,
        reserved_room="Nominated",
        kept_claims=True,
    ),
    "nothing wakes immediate claims": Bug(
        ((ImmediateClaims, "wake", lambda *_, **__: None),),
        ("waits in vain: immediate claim",),
        immediate_claims=True,
    ),
    "nobody is woken when there is room below a limit": Bug(
        ((Limits, "forget", Limits._remove),), ("waits in vain",), class_limits=True
    ),
    "parameters that were not understood are not read again": Bug(
        ((ReferenceReader, "reread_later", no_result),), ("waits in vain",), parameter_references=True
    ),
}
