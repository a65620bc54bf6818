"""What is measured: the workloads. Pure.

Every pod of a workload is alike, so that the numbers tell about Parley rather than about packing. Nobody waits
for a device but those who are there to wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.objects import DEVICE, OUTSIDE, TOKENS, Ask
from benchmarks.schedulers import BARE, DEFAULT, EXTENDER


@dataclass(frozen=True, slots=True)
class Workload:
    """`pods` pods with a template claim for each of `asks`, created all at once, or one after the other is bound.

    Before they come, all devices of so many nodes are `taken` by others, and so many pods are `waiting` for a
    device that no node has. `plain` and `empty` name workloads that it is compared with: pods without claims, and
    the same pods in a cluster where nobody waits and nothing is taken.

    The pods are placed by `scheduler`, one of those in `schedulers`; with `unpublished` there are PodSchedulings
    only for those that had to wait.
    """

    name: str
    nodes: int
    pods: int
    asks: Sequence[Ask] = field(default=())
    one_by_one: bool = False
    taken: int = 0
    waiting: int = 0
    scheduler: str = DEFAULT
    unpublished: bool = False
    plain: str = ""
    empty: str = ""

    @property
    def standalone(self) -> bool:
        """Whether a standalone driver serves some of the claims."""
        return OUTSIDE in self.asks


PLAIN_100, PLAIN_500, EMPTY = "plain-100nodes", "plain-500nodes", "waiting-0"
SECOND = "second-plain"
"""Pods without claims, by the second scheduler without Parley."""

WORKLOADS: Sequence[Workload] = (
    Workload(PLAIN_100, nodes=100, pods=1000),
    Workload("idle-100nodes", nodes=100, pods=20, asks=[DEVICE], one_by_one=True),
    Workload("claims1-100nodes", nodes=100, pods=1000, asks=[DEVICE], plain=PLAIN_100),
    Workload("claims4-100nodes", nodes=100, pods=1000, asks=[DEVICE] * 4, plain=PLAIN_100),
    Workload("two-drivers-100nodes", nodes=100, pods=1000, asks=[DEVICE, DEVICE, TOKENS, TOKENS], plain=PLAIN_100),
    Workload("standalone1-100nodes", nodes=100, pods=1000, asks=[OUTSIDE], plain=PLAIN_100),
    Workload(EMPTY, nodes=100, pods=400, asks=[DEVICE]),
    Workload("full-100nodes", nodes=100, pods=400, asks=[DEVICE], taken=90, empty=EMPTY),
    Workload("waiting-1000", nodes=100, pods=400, asks=[DEVICE], waiting=1000, empty=EMPTY),
    Workload(SECOND, nodes=100, pods=1000, scheduler=BARE),
    Workload("extender-plain", nodes=100, pods=1000, scheduler=EXTENDER, plain=SECOND),
    Workload("extender-idle", nodes=100, pods=20, asks=[DEVICE], one_by_one=True, scheduler=EXTENDER),
    Workload("extender-claims1", nodes=100, pods=1000, asks=[DEVICE], scheduler=EXTENDER, plain=SECOND),
    Workload("extender-claims4", nodes=100, pods=1000, asks=[DEVICE] * 4, scheduler=EXTENDER, plain=SECOND),
    Workload(
        "extender-unpublished",
        nodes=100,
        pods=1000,
        asks=[DEVICE],
        scheduler=EXTENDER,
        unpublished=True,
        plain=SECOND,
    ),
    Workload(PLAIN_500, nodes=500, pods=1000),
    Workload("claims1-500nodes", nodes=500, pods=1000, asks=[DEVICE], plain=PLAIN_500),
)
"""In the order in which they run: nodes are only ever added, and what one is compared with comes before it."""
