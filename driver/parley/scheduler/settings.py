"""The operator's settings of the controller."""

from dataclasses import dataclass

from parley.control.reservation_pods import ReservationPodSettings
from parley.negotiation.rounds import DEFAULT_CANDIDATES
from parley.scheduler.extender.endpoint import ServiceAddress
from parley.scheduler.reporting import PodSchedulings


@dataclass(frozen=True)
class ControllerSettings:
    """The operator's settings.

    `candidates` is how many nodes a round asks about at most (1 to 128). The workers are how many objects of a
    kind are reconciled at once; for pods and claims there are more than calls of one driver (`MOST_CALLS`).
    `instance` is the reporting instance of events. Pods that name one of `scheduler_names`, or request one of
    `managed_resources`, belong to the extender path, which exists if any are given. `pod_schedulings`: which pods
    get a PodScheduling. `namespace` is where standalone drivers have their Leases, and where reservation pods are
    created: these keep out pods of `reservation_schedulers`, and have the PriorityClass `reservation_priority`, or
    the cluster's default. `endpoint` is the address of this process for the Service in `namespace` by which
    schedulers reach it; None if they reach it otherwise.
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
        """The settings of reservation pods."""
        return ReservationPodSettings(self.namespace, self.reservation_schedulers, self.reservation_priority)


DEFAULTS = ControllerSettings()
