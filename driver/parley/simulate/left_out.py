"""Why nodes were not candidates for a pod, evaluated from the state of the simulated cluster's controller."""

from collections.abc import Mapping

from msgspec.structs import replace

from parley.api.builtin import Pod
from parley.api.models import PodScheduling
from parley.control.claims.gathering import gather
from parley.control.state import State
from parley.scheduler.candidates import CandidateNodes, common_nodes

ENOUGH = "enough other nodes are viable"

NOWHERE = "no other node is viable either"
"""By what the drivers answered: in a round before, or all at once."""


def left_out(state: State, pod: Pod, scheduling: PodScheduling) -> Mapping[str, str]:
    """The nodes that are not among the PodScheduling's candidates, each with the reason. The pod is evaluated as
    pending, even if it was just bound and its claims allocated."""
    pending = replace(pod, spec=replace(pod.spec, node_name=""))
    entries = {claim.name for claim in scheduling.status.claims if claim.viable_nodes or claim.reason}
    claims = gather(state, pending)
    negotiated = [claim for claim in claims if claim.entry in entries]
    classes = [class_ for claim in negotiated if (class_ := state.cluster.class_(claim.class_name)) is not None]
    only = common_nodes([claim for claim in claims if claim not in negotiated])
    nodes = CandidateNodes(state, pending, classes, only)
    others = (name for name in state.cluster.node_names() if name not in scheduling.spec.candidate_nodes)
    fitting = ENOUGH if scheduling.status.viable or pod.spec.node_name else NOWHERE
    return {name: nodes.misfit(name) or fitting for name in others}
