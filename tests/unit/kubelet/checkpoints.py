"""What is recorded of claims on a node."""

from tests.unit.kubelet.drivers import PortNode

from parley_kubelet.claims.preparation import ClaimName
from parley_kubelet.state.checkpoint import Checkpoint, CheckpointEntry
from parley_kubelet.state.durable import Folder


def recorded(node: PortNode, claim: ClaimName) -> CheckpointEntry | None:
    return Checkpoint(Folder(node.folder / "state"), "n1").read().get(claim.uid)
