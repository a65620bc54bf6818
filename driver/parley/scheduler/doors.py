"""The two doors, with what they share about pods. A pod is the extender's until it is bound, or it is native."""

from parley.control.allocation import Allocator
from parley.control.cluster import Key
from parley.control.giving_back import GivingBack
from parley.control.metrics import Metrics
from parley.control.records import Records
from parley.control.state import State
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.kube.queue import WorkQueue
from parley.scheduler.extender.door import ExtenderDoor
from parley.scheduler.extender.scope import Scope
from parley.scheduler.native.door import NativeDoor
from parley.scheduler.native.negotiating import Negotiator
from parley.scheduler.placing import Placing
from parley.scheduler.pods import Pods
from parley.scheduler.talks import Talks
from parley.scheduler.telling import Telling


class Doors:
    """`native` is the one whose `sync` works on every pod of the queue; `extender` is None without a scope."""

    def __init__(
        self,
        client: Client,
        state: State,
        allocator: Allocator,
        records: Records,
        giving_back: GivingBack,
        telling: Telling,
        queue: WorkQueue[Key],
        clock: Clock,
        candidates: int,
        scope: Scope,
        metrics: Metrics,
    ) -> None:
        pods = Pods(state.cluster, telling, queue)
        talks = Talks(state, records, pods, candidates)
        placing = Placing(client, state, allocator, records, giving_back, pods, talks)
        negotiator = Negotiator(state, pods, talks, placing, candidates)
        self.extender = (
            ExtenderDoor(
                client,
                state,
                placing,
                pods,
                scope,
                clock,
                candidates,
                negotiator.negotiate,
                metrics,
            )
            if scope
            else None
        )
        self.native = NativeDoor(
            client,
            state,
            allocator,
            records,
            giving_back,
            pods,
            talks,
            placing,
            negotiator,
            other=self.extender,
        )
