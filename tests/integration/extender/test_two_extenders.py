"""A scheduler asks another extender after Parley, which rejects nodes that Parley has selected."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.cluster.manifests import template
from tests.cluster.namespace import Namespace
from tests.cluster.starting import DEPLOY
from tests.integration.extender.conftest import Devices, lead_again, parley_pod
from tests.integration.extender.service import Service, serving

from parley.api.builtin import Pod
from parley.api.resources import CLASSES
from parley_devcluster import Cluster, Component
from parley_devcluster.parley import NAMESPACE
from parley_devcluster.second_scheduler import SECOND_SCHEDULER, configuration

pytestmark = pytest.mark.cluster

REJECTED = "node-0"


class Rejecting(BaseHTTPRequestHandler):
    """An extender that lets no pod go to that node."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = [name for name in asked["NodeNames"] if name != REJECTED]
        failed = dict.fromkeys(set(asked["NodeNames"]) - {*names}, "rejected by the other extender")
        answer = json.dumps({"NodeNames": names, "FailedNodes": failed}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """The scheduler has a log of its own."""


@contextmanager
def rejecting() -> Iterator[str]:
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Rejecting)
    with serving(server):
        yield f"127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def two_extenders(cluster: Cluster, controller: Component, service: Service) -> Iterator[None]:
    """The second scheduler asks another extender after Parley."""
    account = cluster.kubeconfig_for_service_account(NAMESPACE, SECOND_SCHEDULER)
    with rejecting() as address:
        settings = configuration(DEPLOY, account, service.address)
        other = {"urlPrefix": f"http://{address}", "filterVerb": "filter", "nodeCacheCapable": True}
        settings["extenders"] += [other]
        settings["leaderElection"] = {"leaderElect": False}
        cluster.component(SECOND_SCHEDULER).stop()
        component = cluster.add_scheduler("two-extenders", settings)
        try:
            yield
        finally:
            component.stop()
            lead_again(cluster)


def was_rejected(pod: Pod) -> bool:
    return any("rejected by the other extender" in condition.message for condition in pod.status.conditions)


async def test_a_packed_pod_whose_node_the_other_extender_rejects_goes_to_the_next_one(
    team: Namespace, devices: Devices, two_extenders: None
) -> None:
    await devices(node_0=1, node_1=2)
    await team.client.patch(CLASSES, "gpu", {"prefer": "Pack"})
    await team.create(template("one"), parley_pod("p", templates={"gpu": "one"}))
    await team.pod("p", was_rejected, "was rejected")

    await team.create(
        parley_pod("plain")
    )  # whatever happens makes the scheduler try a pod that an extender rejected

    assert (await team.bound("p")).spec.node_name == "node-1"
