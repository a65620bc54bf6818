"""The nodes that a pod's volumes tie it to: those of the PersistentVolumes that its claims are bound to.

Volumes are read from when a pod with claims of Parley's first has one. A PersistentVolumeClaim that is not bound
yet does not tie the pod: its scheduler chooses the volume with the node.
"""

from collections.abc import Iterable, Iterator, Sequence

from parley.api.builtin import NodeSelector, Pod
from parley.api.volumes import PersistentVolume, PersistentVolumeClaim
from parley.control.caches.wanted import WantedInformer
from parley.kube.responses import Listing


def volume_claims(pod: Pod) -> Iterable[tuple[str, str]]:
    """Namespace and name of each PersistentVolumeClaim of the pod; an ephemeral volume's is POD-VOLUME."""
    meta = pod.metadata
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield meta.namespace, volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield meta.namespace, f"{meta.name}-{volume.name}"


class Volumes:
    """The PersistentVolumeClaims and PersistentVolumes, if they are read."""

    def __init__(
        self, claims: WantedInformer[PersistentVolumeClaim], volumes: WantedInformer[PersistentVolume]
    ) -> None:
        self._claims = claims
        self._volumes = volumes
        claims.informer.index("volume", lambda claim: filter(None, [claim.bound_to]))

    def selectors(self, pod: Pod) -> tuple[tuple[str, NodeSelector], ...]:
        """The names of the pod's PersistentVolumeClaims, each with the nodes that its volume can be used on."""
        return tuple(self._selectors(volume_claims(pod))) if pod.spec.volumes else ()

    def replace(self, claims: Sequence[PersistentVolumeClaim], volumes: Sequence[PersistentVolume]) -> None:
        """Put these into the caches in place of others, if the informers do not run."""
        self._claims.informer.replace(Listing(tuple(claims), ""))
        self._volumes.informer.replace(Listing(tuple(volumes), ""))

    def known(self, pod: Pod) -> bool:
        """Whether the kinds that decide where the pod can go are read by now; begins to read them if need be."""
        if not pod.spec.volumes:
            return True
        self._claims.want()
        self._volumes.want()
        return self._claims.settled and self._volumes.settled

    def claims_of(self, volume: str) -> Sequence[PersistentVolumeClaim]:
        """The claims that are bound to the volume."""
        return self._claims.informer.by_index("volume", volume)

    def _selectors(self, claims: Iterable[tuple[str, str]]) -> Iterator[tuple[str, NodeSelector]]:
        for namespace, name in claims:
            claim = self._claims.informer.get(namespace, name)
            volume = self._volumes.informer.get("", claim.bound_to) if claim is not None else None
            affinity = volume.spec.node_affinity if volume is not None else None
            if affinity is not None and affinity.required is not None:
                yield name, affinity.required
