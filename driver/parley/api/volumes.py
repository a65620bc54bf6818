"""PersistentVolumes and PersistentVolumeClaims, which tie pods to nodes, with only the fields that Parley reads.

For decoding only, as all of `builtin`.
"""

from parley.api.builtin import NodeSelector, ObjectMeta, Struct


class VolumeClaimSpec(Struct, frozen=True):
    volume_name: str = ""


class VolumeClaimStatus(Struct, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Struct, frozen=True):
    """A PersistentVolumeClaim, read for its volume; a user may name one before the claim is bound."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: VolumeClaimStatus = VolumeClaimStatus()

    @property
    def bound_to(self) -> str:
        """The volume's name, "" before it is bound."""
        return self.spec.volume_name if self.status.phase == "Bound" else ""


class VolumeNodeAffinity(Struct, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(Struct, frozen=True):
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(Struct, frozen=True):
    """A PersistentVolume, read for the nodes where it can be used."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeSpec = VolumeSpec()
