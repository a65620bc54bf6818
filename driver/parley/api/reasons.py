"""Stable codes for why a pod or claim waits; in PodScheduling `status.waitingFor`, conditions and events."""

from typing import Final

CLASS_NOT_FOUND: Final = "ClassNotFound"
"""The claim names a ResourceClass that does not exist."""

WAITING_FOR_DRIVERS: Final = "WaitingForDrivers"
"""Standalone drivers were asked about candidate nodes and have yet to answer."""

DRIVER_NOT_ANSWERING: Final = "DriverNotAnswering"
"""A standalone driver has not answered for 30 s: it may not run, or the class may misspell it."""

ALLOCATING: Final = "Allocating"
"""A node is selected; standalone drivers are allocating on it."""

OTHER_SCHEDULER: Final = "OtherScheduler"
"""The pod requests something that its scheduler, which calls Parley's extender, does not serve; another does."""

LIMIT_REACHED: Final = "LimitReached"
"""The pod's namespace holds as much of a class as the class allows it."""

PARAMETERS_INVALID: Final = "ParametersInvalid"
"""Parameters of the claim or class fail the driver's schema."""

PARAMETERS_NOT_FOUND: Final = "ParametersNotFound"
"""The object that `parametersRef` of the claim or class names does not exist."""

PARAMETERS_FORBIDDEN: Final = "ParametersForbidden"
"""Parley's account lacks the right to read the object that `parametersRef` names."""

PARAMETERS_NOT_READ: Final = "ParametersNotRead"
"""The object that `parametersRef` names has yet to be read, or the API server did not answer."""

CLAIM_NOT_FOUND: Final = "ClaimNotFound"
"""The pod names a claim or template that exists neither in parley.dev nor in resource.k8s.io."""

CLAIM_NOT_MADE: Final = "ClaimNotMade"
"""A template with `sharedBy` would make the claim that the pod names, and the pod's labels don't fit."""

CLAIM_UNUSED: Final = "ClaimUnused"
"""An event on a pod: no container of it names the claim, so nothing of what the pod holds gets into one."""

NAME_TAKEN: Final = "NameTaken"
"""A built-in object of the same name, not made by Parley, is in the way of the mirror."""

CLAIM_PENDING: Final = "ClaimPending"
"""The claim is to be allocated without a pod (allocationMode Immediate), and is not yet."""

CLAIM_IN_USE: Final = "ClaimInUse"
"""Another pod uses the claim, and its class is not shareable."""

CLAIM_FULL: Final = "ClaimFull"
"""As many pods use the shareable claim as Kubernetes allows."""

RELEASING: Final = "Releasing"
"""A pod that used the claim was deleted by force; its node has yet to confirm that it is not prepared any more."""

CLAIM_BEING_DELETED: Final = "ClaimBeingDeleted"
"""The claim is being deleted and can't be used any more."""

CLAIM_STRANDED: Final = "ClaimStranded"
"""A named claim is allocated where the pod can't go: the node is deleted, cordoned, tainted or full."""

CLAIM_FAILED: Final = "ClaimFailed"
"""The named claim has failed: its node took no pods for longer than its class bears."""

CLAIM_RECREATED: Final = "ClaimRecreated"
"""An event on a claim: what it had on a node that is lost was given up; it is allocated anew."""

OVER_SIZE: Final = "OverSize"
"""An event on a claim and its pods: a workspace uses more of the node's disk than its size."""

SIZE_UNKNOWN: Final = "SizeUnknown"
"""An event on a claim and its pods: a workspace can't be measured as a whole."""

ROOM_NOT_HELD: Final = "RoomNotHeld"
"""An event on a claim: the scheduler does not keep ordinary pods out of the room that it reserves."""

NO_CANDIDATES: Final = "NoCandidates"
"""No node passes the scheduler's basic filters and the classes' suitableNodes."""

CONFLICTING_ALLOCATIONS: Final = "ConflictingAllocations"
"""Claims of the pod are allocated on different nodes: no one node has them all."""

NOTHING_VIABLE: Final = "NothingViable"
"""No candidate is viable for all claims."""

DRIVER_FAILED: Final = "DriverFailed"
"""An embedded driver raised where it had to answer, or broke the contract; it is asked again."""

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
"""Pods of lower priority are evicted for what they hold, or are on their way out; it is kept for the pod."""

PREEMPTED: Final = "Preempted"
"""The pod was evicted: a pod of higher priority gets what it held."""

EVICTION_FORBIDDEN: Final = "EvictionForbidden"
"""The class says `preemption: LowerPriority`, and Parley's account lacks the right to evict pods."""

BINDING: Final = "Binding"
"""Everything is allocated; the scheduler has yet to bind the pod."""

ALLOCATED: Final = "Allocated"
"""The claim is allocated."""

READY: Final = "Ready"
"""A pod may use the claim: it is accepted and allocated, and not on its way out. Or: the class can be used."""

WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
"""The claim is allocated for the first pod that uses it, and none does yet."""

DEALLOCATING: Final = "Deallocating"
"""A standalone driver was asked to take back what it allocated for the claim."""

DRIVER_MISSING: Final = "DriverMissing"
"""The driver of the class runs nowhere, as far as the controller knows."""

ACCEPTED: Final = "Accepted"
"""The claim can be negotiated: class, driver and parameters are known."""

UNREADABLE: Final = "Unreadable"
"""The controller can't decode the object, and goes on without it."""
