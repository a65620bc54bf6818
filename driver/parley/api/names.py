"""Names that several parts must spell alike: groups, labels, finalizers, annotations, conditions."""

from typing import Final

GROUP: Final = "parley.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "parley.dev/v1alpha1"

CLI_VERSION: Final = "cli.parley.dev/v1alpha1"
"""`apiVersion` of what commands print with `-o json`. Fields may be added; a change of one raises the version."""

DEVICE_CLASS: Final = "being-negotiated.parley.dev"
"""The DeviceClass that a mirror's request names. It must not exist: the scheduler's message then names it."""

EXCLUSIVE_REQUEST: Final = "exclusive"
"""Name of a mirror's one request if only one pod may use the claim; the admission policy guards these."""

SHAREABLE_REQUEST: Final = "shareable"
"""Name of a mirror's one request if several pods may use the claim."""

MIRROR_LABEL: Final = "parley.dev/mirror"
"""Label of every mirror: claims, and the templates that the claim controller makes claims from."""

TEMPLATE_MIRROR: Final = "template"
"""Its value on templates."""

FINALIZER: Final = "parley.dev/in-use"
"""On a named mirror and its Parley claim: no deletion while a pod uses what was allocated."""

POD_CLAIM_NAME_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
"""Set by the claim controller on a generated claim: the entry in `pod.spec.resourceClaims`."""

GENERATED_LABEL: Final = "parley.dev/generated-for"
"""On a ResourceClaim that stands for a generated claim, so that a standalone driver can write its
allocation there: the entry in `pod.spec.resourceClaims`."""

LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{LABEL}(\.{LABEL})*"
"""Pattern of names of objects, by DNS."""

MAX_NAME: Final = 253
"""Characters of an object's name."""

MADE_FROM_ANNOTATION: Final = "parley.dev/made-from"
"""On a named claim that a template's `sharedBy` made: the template. For people; nothing is decided by it."""

DRIVERS_LABEL: Final = "parley.dev/drivers"
"""On a PodScheduling: "standalone" if it has questions to standalone drivers."""

STANDALONE: Final = "standalone"

NEGOTIATED_TAINT: Final = "parley.dev/negotiated"
"""NoSchedule taint on every device that Parley's node plugin publishes: ordinary DRA leaves it alone."""

PUBLISHED_BY_LABEL: Final = "parley.dev/published-by"
"""On a ResourceSlice of a driver whose node plugin publishes one wherever it runs: a node without a slice of the
driver is one without the plugin. A policy guards the label, because what it says concerns all nodes."""

NODE_PLUGIN: Final = "node-plugin"
"""The value of that label."""

CONDITION_ALLOCATED: Final = "parley.dev/allocated"
"""Binding condition of a provisional allocation: True once the drivers allocated on the nominated node."""

CONDITION_DECLINED: Final = "parley.dev/declined"
"""Binding failure condition of a provisional allocation: the scheduler takes the claim back."""

CONDITION_RECORDED: Final = "parley.dev/recorded"
"""Binding condition of the allocation of an exclusive named claim: always True. The API has no binding failure
conditions without one."""

CONDITION_IN_USE: Final = "parley.dev/in-use"
"""Binding failure condition of the same: True while a bound pod uses the claim and others wait for it."""

BINDING_CONDITIONS: Final = frozenset(
    {CONDITION_ALLOCATED, CONDITION_DECLINED, CONDITION_RECORDED, CONDITION_IN_USE}
)
"""All that Parley writes into `status.devices` for schedulers."""

RESERVATION_GATE: Final = "parley.dev/reservation"
"""Scheduling gate of a reservation pod, or the label of nodes by which its affinity contradicts itself: it never
runs, and its nomination holds room on a node."""

RESERVED_CLAIM_LABEL: Final = "parley.dev/reserved-claim"
"""On a reservation pod: the UID of the claim that it holds room for."""

RESERVED_FOR_ANNOTATION: Final = "parley.dev/reserved-for"
"""On a reservation pod: namespace and name of that claim. For people; nothing is decided by it."""

FIELD_MANAGER: Final = "parley-controller"

CONTROLLER_LEASE: Final = "parley-controller"
"""Name of the Lease of the controllers, unless the command line sets another."""

CONDITION_ALLOCATING: Final = "Allocating"
"""Condition of a ResourceClaim while a driver works on its allocation; the message is its progress."""

CONDITION_RELEASING: Final = "Releasing"
"""Condition of a ResourceClaim of which nodes have yet to confirm that it is not prepared there any more."""

CONDITION_STRANDED: Final = "Stranded"
"""Condition of a ResourceClaim whose only node takes no pods; the reason is what is wrong with the node."""

CONDITION_NEEDED: Final = "Needed"
"""Condition of a ResourceClaim that no pod uses, and that stays allocated because other claims need it."""

CONDITION_FAILED: Final = "Failed"
"""Condition of a ResourceClaim that no pod may use any more, for good: its class lets it fail with its node."""

NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
"""On a node whose kubelet reports that it is not ready, by Kubernetes."""

UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"
"""On a node whose kubelet does not report any more, by Kubernetes."""

OUT_OF_SERVICE_TAINT: Final = "node.kubernetes.io/out-of-service"
"""Set by an administrator on a node that is shut down: nothing runs there, whatever its kubelet last reported."""


EXTENDER_SAYS: Final = "Parley: "
"""What the extender answers a scheduler begins so, and stands in that scheduler's message."""


def driver_finalizer(driver: str) -> str:
    """What a standalone driver puts on a claim before it allocates anything for it."""
    return f"{driver}/deletion-protection"


def is_driver_finalizer(name: str) -> bool:
    """Whether it is the finalizer of some standalone driver."""
    return name.endswith(driver_finalizer(""))


def driver_annotation(driver: str) -> str:
    """Where a standalone driver notes on a claim on which node it has begun to allocate."""
    return f"{driver}/allocating-on"


def driver_lease(driver: str) -> str:
    """The Lease by which replicas of a standalone driver elect one that works."""
    return f"parley-driver-{driver}"
