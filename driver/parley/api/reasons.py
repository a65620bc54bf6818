"""Stable codes for why a pod or claim waits; in PodScheduling `status.waitingFor`, conditions and events."""

from typing import Final

CLASS_NOT_FOUND: Final = "ClassNotFound"
"""The claim names a ResourceClass that does not exist."""

WAITING_FOR_DRIVERS: Final = "WaitingForDrivers"
"""Standalone drivers were asked about candidate nodes and have not answered yet."""

DRIVER_NOT_ANSWERING: Final = "DriverNotAnswering"
"""A standalone driver has not answered for 30 s: it does not run, or the class misspells its name."""

DRIVER_MOVED: Final = "DriverMoved"
"""A standalone driver allocated inside the controller before, and does not know of these claims."""

ALLOCATING: Final = "Allocating"
"""A node is selected; standalone drivers are allocating on it."""

OTHER_SCHEDULER: Final = "OtherScheduler"
"""The pod needs something that its scheduler, which calls Parley's extender, does not support."""

LIMIT_REACHED: Final = "LimitReached"
"""The pod's namespace holds as much of a class as the limits of the class allow."""

PARAMETERS_INVALID: Final = "ParametersInvalid"
"""Parameters of the claim or class fail the driver's schema."""

PARAMETERS_NOT_FOUND: Final = "ParametersNotFound"
"""The object that `parametersRef` of the claim or class names does not exist."""

PARAMETERS_FORBIDDEN: Final = "ParametersForbidden"
"""Parley's account may not read the object that `parametersRef` names."""

PARAMETERS_NOT_READ: Final = "ParametersNotRead"
"""The object that `parametersRef` names could not be read yet."""

CLAIM_NOT_FOUND: Final = "ClaimNotFound"
"""The pod names a claim or template that exists neither in parley.dev nor in resource.k8s.io."""

CLAIM_NOT_MADE: Final = "ClaimNotMade"
"""A template with `sharedBy` would create the claim that the pod names, but the pod's labels don't match."""

CLAIM_UNUSED: Final = "ClaimUnused"
"""An event on a pod: none of its containers names the claim, so none can use what is allocated."""

NAME_TAKEN: Final = "NameTaken"
"""A built-in object that Parley did not create has the name that the mirror needs."""

CLAIM_PENDING: Final = "ClaimPending"
"""The claim has allocationMode Immediate and is not allocated yet."""

CLAIM_IN_USE: Final = "ClaimInUse"
"""Another pod uses the claim, and its class is not shareable."""

CLAIM_FULL: Final = "ClaimFull"
"""As many pods use the shareable claim as Kubernetes allows."""

RELEASING: Final = "Releasing"
"""A pod that used the claim was force-deleted; its node has not confirmed yet that it is no longer prepared."""

CLAIM_BEING_DELETED: Final = "ClaimBeingDeleted"
"""The claim is being deleted and can't be used any more."""

CLAIM_STRANDED: Final = "ClaimStranded"
"""A named claim is allocated where the pod can't go: the node is deleted, cordoned, tainted or full."""

CLAIM_FAILED: Final = "ClaimFailed"
"""The named claim has failed: its node took no pods for longer than its class tolerates."""

CLAIM_RECREATED: Final = "ClaimRecreated"
"""An event on a claim: what it had on a lost node was given up; it is allocated again."""

OVER_SIZE: Final = "OverSize"
"""An event on a claim and its pods: a workspace uses more of the node's disk than its size."""

SIZE_UNKNOWN: Final = "SizeUnknown"
"""An event on a claim and its pods: a workspace can't be measured as a whole."""

DISK_UNRESPONSIVE: Final = "DiskUnresponsive"
"""An event on a claim and its pods: the disk of their workspaces does not answer."""

ROOM_NOT_HELD: Final = "RoomNotHeld"
"""An event on a claim: the scheduler does not keep ordinary pods out of the room that it reserves."""

NO_CANDIDATES: Final = "NoCandidates"
"""No node passes the scheduler's basic filters and the classes' suitableNodes."""

CONFLICTING_ALLOCATIONS: Final = "ConflictingAllocations"
"""Claims of the pod are allocated on different nodes: no node has all of them."""

NOTHING_VIABLE: Final = "NothingViable"
"""No candidate is viable for all claims."""

DRIVER_FAILED: Final = "DriverFailed"
"""A driver raised an exception, violated the driver interface, or says that it can't answer; it is asked again."""

WRITE_REFUSED: Final = "WriteRefused"
"""The API server refused an object that the pod needs, such as the mirror of its template; it is tried again."""

ALLOCATION_FAILED: Final = "AllocationFailed"
"""A driver could not allocate on the selected node; it is tried again."""

PERMANENTLY_FAILED: Final = "PermanentlyFailed"
"""A driver can never allocate on the selected node, and the class's `onPermanentError` is FailPod."""

SCHEDULER_REFUSED: Final = "SchedulerRefused"
"""The scheduler refused every node offered; they are offered again after a pause or a change."""

SCHEDULER_CHOOSES: Final = "SchedulerChooses"
"""The viable nodes were offered; the scheduler is choosing among them."""

PREEMPTING: Final = "Preempting"
"""Pods of lower priority were evicted for what they hold, or are terminating; it is kept for the pod."""

PREEMPTED: Final = "Preempted"
"""The pod was evicted: a pod of higher priority gets what it held."""

EVICTION_FORBIDDEN: Final = "EvictionForbidden"
"""The class has `preemption: LowerPriority`, but Parley's account may not evict pods."""

BINDING: Final = "Binding"
"""Everything is allocated; the scheduler has not bound the pod yet."""

ALLOCATED: Final = "Allocated"
"""The claim is allocated."""

READY: Final = "Ready"
"""A pod may use the claim: it is accepted, allocated and not about to be released. Or: the class can be used."""

IN_CONTROLLER: Final = "InController"
"""The class can be used, and its driver decides in the controller's process."""

WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
"""The claim is allocated for the first pod that uses it, and none does yet."""

DEALLOCATING: Final = "Deallocating"
"""A standalone driver was asked to release what it allocated for the claim."""

DRIVER_MISSING: Final = "DriverMissing"
"""As far as the controller knows, the driver of the class does not run."""

ACCEPTED: Final = "Accepted"
"""Nothing is wrong with the claim: class, driver and parameters are known."""

UNREADABLE: Final = "Unreadable"
"""The controller can't decode the object, and goes on without it."""
