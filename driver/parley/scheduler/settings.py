"""What an operator can choose about the controller."""

from dataclasses import dataclass

from parley.control.reservation_pods import ReservationPodSettings
from parley.negotiation.rounds import DEFAULT_CANDIDATES
from parley.scheduler.extender.endpoint import ServiceAddress
from parley.scheduler.reporting import PodSchedulings


@dataclass(frozen=True)
class ControllerSettings:
    """What an operator can choose.

    `candidates` is how many nodes a round asks about at most (1 to 128), the workers how many objects of a kind
    are reconciled at once: of pods and of claims more than one driver's calls occupy (`MOST_CALLS`). `instance` is
    the name in events. Pods that name one of `scheduler_names`, or request one of `managed_resources`, are
    negotiated for by the extender path, which is there if any are given.
    `pod_schedulings`: whether there is a PodScheduling for every pod, or only for those that had to wait.
    `namespace` is where standalone drivers have their Leases, and where reservation pods are made: they keep out
    pods of `reservation_schedulers`, and have the PriorityClass `reservation_priority`, or the cluster's default.
    `endpoint` is where schedulers reach this process by a Service of `namespace`; None if they reach it otherwise.
    """

    candidates: int = DEFAULT_CANDIDATES
    pod_workers: int = 16
    claim_workers: int = 16
    publish_workers: int = 4
    instance: str = "parley-controller"
    scheduler_names: tuple[str, ...] = ()
    managed_resources: tuple[str, ...] = ()
    pod_schedulings: PodSchedulings = "Always"
    namespace: str = "parley-system"
    reservation_schedulers: tuple[str, ...] = ()
    reservation_priority: str = ""
    endpoint: ServiceAddress | None = None

    @property
    def reservation_pods(self) -> ReservationPodSettings:
        """Where and how reservation pods are made."""
        return ReservationPodSettings(self.namespace, self.reservation_schedulers, self.reservation_priority)


DEFAULTS = ControllerSettings()
