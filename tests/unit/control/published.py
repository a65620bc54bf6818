"""What is published about a pod: reports, and a publisher of its PodScheduling."""

from tests.unit.control.builders import NAMESPACE, TOKENS, World

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import PodScheduling
from parley.api.resources import POD_SCHEDULINGS, PODS
from parley.control.objects.pod import reference
from parley.control.publishing.podscheduling import Publisher, Question, Report, StandaloneClaim
from parley.kube.queue import WorkQueue
from parley.negotiation.answers import Answer
from parley.negotiation.rounds import Outcome
from parley.sdk import PodReference

ANSWER = Answer(("node-1",), ("node-3",), {"node-2": "0 of 1 device free"})
OUTCOME = Outcome(2, ("node-1", "node-2"), {"gpu": ANSWER}, viable=("node-1",))
WAITING = Report(OUTCOME, {"gpu": TOKENS}, waiting_for=reasons.LIMIT_REACHED, message="no room")
BOUND = Report(OUTCOME, {"gpu": TOKENS}, selected="node-1")
ASKED = Report(
    Outcome(1, ("node-1",)),
    {"disk": "outside.example.com"},
    selected="node-1",
    waiting_for=reasons.ALLOCATING,
    question=Question((StandaloneClaim("disk", "outside.example.com", "p-disk"),), priority=7),
)
GPU = {"gpu": TOKENS}
POD = PodReference(NAMESPACE, "p", "uid-p")


class Published:
    """A publisher for a pod, and what it has written."""

    def __init__(self, world: World, pod: Pod) -> None:
        self.world = world
        self.pod = reference(pod)
        self.queue: WorkQueue[PodReference] = WorkQueue()
        self.publisher = Publisher(world.client, self.queue, world.cluster.scheduling, world.cluster.has_pod)

    async def publish(self, *reports: Report) -> None:
        for report in reports:
            self.publisher.enqueue(self.pod, report)
        await self.publisher.publish(self.pod)

    async def gone(self) -> None:
        """The cache shows that the pod is gone."""
        await self.world.delete(PODS, "p")
        await self.world.seen()
        self.publisher.forget(self.pod)

    async def deleted(self) -> None:
        """The cache shows that the PodScheduling is gone, too."""
        await self.world.seen()
        self.publisher.scheduling_deleted(self.pod)

    async def shown(self) -> PodScheduling:
        return await self.world.admin.get(POD_SCHEDULINGS, "p", NAMESPACE)

    @property
    def writes(self) -> list[str]:
        return [call.verb for call in self.world.writes]
