"""The driver in Go and the real controller: a program that shares no line with Parley allocates for pods."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.load import Bindings, remove_pods
from tests.cluster.manifests import claim, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.replicas import Replicas
from tests.cluster.watching import until
from tests.integration.driver.test_go_driver import NAME, SOURCES, require_go, through_a_proxy

from parley.api import reasons
from parley.api.resources import CLAIMS, PODS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def seats(cluster: Cluster, tmp_path: Path) -> Iterator[None]:
    """The driver, running until the team has gone: its claims wait for it."""
    built = tmp_path / "seats"
    subprocess.run([require_go(), "build", "-o", str(built), "."], cwd=SOURCES, check=True)
    with through_a_proxy(cluster, built, tmp_path) as running:
        yield
        running.stop()


async def test_pods_get_their_seats_and_the_next_one_what_is_given_back(
    seats: None, team: Namespace, bindings: Bindings, controllers: Replicas
) -> None:
    await controllers.lead()
    await team.create(resource_class("seat", NAME, nodePart="None", parameters={"seats": 1}))
    await team.create(template("seat", "seat"), claim("mine", "seat"))
    await team.create(
        pod("a", templates={"seat": "seat"}),
        pod("b", templates={"seat": "seat"}),
        pod("c", claims={"seat": "mine"}),
    )

    await bindings.all_of(["a", "b", "c"])

    nodes = {item.spec.node_name for item in (await team.client.list(PODS, team.name)).items}
    assert len(nodes) == 3, "one seat on each of three nodes"
    await team.create(pod("d", templates={"seat": "seat"}))
    await team.waits("d", reasons.NOTHING_VIABLE)
    await team.delete(PODS, "c")
    await bindings.all_of(["d"])
    await remove_pods(team)
    await until(
        team.client,
        CLAIMS,
        lambda found: all(item.status.allocation is None for item in found.values()),
        "nothing is held",
        namespace=team.name,
    )
