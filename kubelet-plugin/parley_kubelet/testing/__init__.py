"""For tests of node drivers and of the plugin itself.

A driver's author calls the driver's hooks, and has them checked for what `parley_kubelet.hooks` promises:

    async def test_my_driver_keeps_its_promises() -> None:
        make = lambda: MyDriver("node-1", MySettings(folder=folder))
        await check_node_driver(NodeScenario(make, claims=(one, two), left=lambda: sorted(folder.iterdir())))

The parts around the plugin are played: the kubelet on the sockets, the controller in a claim's status.

    async with Kubelet(registration_socket) as kubelet:
        answers = await kubelet.prepare(claim)

What a real kubelet and container runtime do with the answers is not played here.
"""

from parley_kubelet.testing.claims import allocated_status, claim_body, create_claim, offered_status
from parley_kubelet.testing.kubelet import Kubelet, until
from parley_kubelet.testing.promises import NodeScenario, check_node_driver, node_claim

__all__ = [
    "Kubelet",
    "NodeScenario",
    "allocated_status",
    "check_node_driver",
    "claim_body",
    "create_claim",
    "node_claim",
    "offered_status",
    "until",
]
