"""Which events requeue a pod, by what rejected it."""

from collections.abc import Iterable

import pytest

from parley.simulate.scheduling_queue import ClusterEvent, Plugin, RequeueFilter

POD = ("team", "p")
ALL = frozenset(ClusterEvent)


@pytest.mark.parametrize(
    ("plugins", "events"),
    [
        (
            [Plugin.NODE_RESOURCES_FIT],
            {ClusterEvent.POD_LEFT, ClusterEvent.NODE_ADDED, ClusterEvent.NODE_ALLOCATABLE},
        ),
        (
            [Plugin.TAINT_TOLERATION],
            {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS, ClusterEvent.POD_TOLERATIONS},
        ),
        (
            [Plugin.NODE_AFFINITY, Plugin.TAINT_TOLERATION],
            {
                ClusterEvent.NODE_ADDED,
                ClusterEvent.NODE_LABELS,
                ClusterEvent.NODE_TAINTS,
                ClusterEvent.POD_TOLERATIONS,
            },
        ),
        ([Plugin.NODE_RESOURCES_FIT, Plugin.EXTENDER], ALL),
        ([], ALL),
    ],
)
@pytest.mark.parametrize("meanwhile", [False, True])
def test_only_what_plugins_that_rejected_it_look_at_requeues_a_pod(
    plugins: Iterable[Plugin], events: frozenset[ClusterEvent], meanwhile: bool
) -> None:
    def requeues(event: ClusterEvent) -> bool:
        requeued: list[tuple[str, str]] = []
        queue = RequeueFilter(requeued.append)
        with queue.attempt(POD):
            if meanwhile:
                queue.event(POD, event)
            queue.rejected(POD, [*plugins])
        if not meanwhile:
            queue.event(POD, event)
        return requeued == [POD]

    assert {event for event in ClusterEvent if requeues(event)} == events


def test_a_pod_that_nothing_rejected_is_requeued_by_any_event() -> None:
    requeued: list[tuple[str, str]] = []
    queue = RequeueFilter(requeued.append)
    queue.event(POD, ClusterEvent.OTHER)
    assert requeued == [POD]
