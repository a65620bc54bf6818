"""Which extended resources a DRA driver allocates where nodes have none of them, by the cluster's DeviceClasses:
the scheduler does not count them there.

DeviceClasses are read from when a pod with claims of Parley's first requests such a resource.
Source: plugins/noderesources of Kubernetes 1.37 (shouldDelegateResourceToDRA).
"""

from collections.abc import Iterable, Sequence

from parley.api.builtin import DeviceClass, Pod
from parley.control.caches.wanted import WantedInformer
from parley.kube.responses import Listing
from parley.negotiation.requests import requested

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Before the name of a DeviceClass: that resource needs no other name."""


def extended_resources(requests: Iterable[str]) -> frozenset[str]:
    """Those of the resources that a DeviceClass may stand for."""
    return frozenset(name for name in requests if "/" in name)


class Delegated:
    """The DeviceClasses, as far as they are read."""

    def __init__(self, classes: WantedInformer[DeviceClass]) -> None:
        self._classes = classes

    def replace(self, classes: Sequence[DeviceClass]) -> None:
        """Have these, and no others, where nothing is watched."""
        self._classes.want()
        self._classes.informer.replace(Listing(tuple(classes), ""))

    def known(self, pod: Pod) -> bool:
        """Whether it is read by now what a driver allocates of what the pod requests; begins to read it."""
        if not extended_resources(requested(pod)):
            return True
        self._classes.want()
        return self._classes.settled

    def among(self, requests: Iterable[str]) -> frozenset[str]:
        """Those of the resources that a DeviceClass stands for; all that one may as long as none are read."""
        wanted, classes = extended_resources(requests), self._classes.informer
        if not wanted or not self._classes.is_wanted:
            return wanted
        named = {one.spec.extended_resource_name for one in classes.values()}
        return frozenset(
            name
            for name in wanted
            if name in named or (name.startswith(IMPLICIT) and classes.get("", name.removeprefix(IMPLICIT)))
        )
