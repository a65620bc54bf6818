"""The extended resources that DRA drivers allocate, by the cluster's DeviceClasses: on nodes that have none of
them, the scheduler does not count them.

DeviceClasses are read from when a pod with claims of Parley's first requests such a resource.
Source: plugins/noderesources of Kubernetes 1.37 (shouldDelegateResourceToDRA).
"""

from collections.abc import Iterable, Sequence

from parley.api.builtin import DeviceClass, Pod
from parley.control.caches.wanted import WantedInformer
from parley.kube.responses import Listing
from parley.negotiation.requests import requested

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""The prefix of a DeviceClass's name in the implicit name of its extended resource."""


def extended_resources(requests: Iterable[str]) -> frozenset[str]:
    """The resources that a DeviceClass may stand for, by their names."""
    return frozenset(name for name in requests if "/" in name)


class Delegated:
    """The DeviceClasses, if they are read."""

    def __init__(self, classes: WantedInformer[DeviceClass]) -> None:
        self._classes = classes

    def replace(self, classes: Sequence[DeviceClass]) -> None:
        """Put these into the cache in place of others, if the informer does not run."""
        self._classes.want()
        self._classes.informer.replace(Listing(tuple(classes), ""))

    def known(self, pod: Pod) -> bool:
        """Whether the DeviceClasses for the pod's requests are read by now; begins to read them if need be."""
        if not extended_resources(requested(pod)):
            return True
        self._classes.want()
        return self._classes.settled

    def among(self, requests: Iterable[str]) -> frozenset[str]:
        """The resources that a DeviceClass stands for; as long as none are read, all that one may stand for."""
        wanted, classes = extended_resources(requests), self._classes.informer
        if not wanted or not self._classes.is_wanted:
            return wanted
        named = {class_.spec.extended_resource_name for class_ in classes.values()}
        return frozenset(
            name
            for name in wanted
            if name in named or (name.startswith(IMPLICIT) and classes.get("", name.removeprefix(IMPLICIT)))
        )
