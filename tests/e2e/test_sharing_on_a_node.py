"""Several pods of one node use one claim: it is prepared once, and unprepared when the last of them is gone."""

import asyncio
from pathlib import Path

import pytest
import yaml
from tests.cluster.containers import LOOK, devices_seen, execute, touch
from tests.cluster.manifests import UNTIL_FINISHED, Manifest, claim, pod, resource_class
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import allocated, plugin
from tests.cluster.nodes import PREPARED, calls, prepared, specifications, unprepared

from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

COUNTED = "counted.example.com"
TOGETHER = ("finishes", "is-deleted", "is-forced")


async def test_a_shared_claim_is_prepared_once_and_unprepared_after_the_last_pod_however_the_pods_end(
    cluster: Cluster, team: Namespace
) -> None:
    node = cluster.node("node-b")
    await team.create(resource_class("shared", shareable=True), claim("ours", "shared"))

    def user(name: str) -> Manifest:
        where = {"kubernetes.io/hostname": node.name}
        return pod(name, claims={"gpu": "ours"}, script=LOOK + UNTIL_FINISHED, nodeSelector=where)

    await team.create(*(user(name) for name in TOGETHER))
    await asyncio.gather(*(team.runs(name) for name in TOGETHER))
    asked = calls(cluster, node.name, PREPARED)
    files = {name: (node.cdi_dir / name).stat() for name in specifications(node)}
    await team.create(user("is-late"))
    await team.runs("is-late")
    uid = (await team.client.get(BUILTIN_CLAIMS, "ours", team.name)).metadata.uid
    held = prepared(node)
    assert held.keys() == {uid}
    for name in (*TOGETHER, "is-late"):
        assert devices_seen(cluster, team, name) == sorted(held[uid])

    await end(cluster, team)

    assert prepared(node) == held
    assert {name: (node.cdi_dir / name).stat() for name in specifications(node)} == files
    assert calls(cluster, node.name, PREPARED) == asked
    await team.client.delete(PODS, "is-late", team.name, grace_period_seconds=0)
    await unprepared(node, uid)


async def test_a_drivers_hooks_are_called_once_for_a_claim_of_several_pods(
    cluster: Cluster, team: Namespace, tmp_path: Path
) -> None:
    node, book, file = cluster.node("node-b"), tmp_path / "calls", tmp_path / "node.yaml"
    file.write_text(yaml.safe_dump({"drivers": {COUNTED: {"file": str(book)}}}))
    driver = ("--driver", "tests.cluster.counting_node:CountingNode")
    with plugin(cluster, node, "counting", file, *driver, state=tmp_path / "state"):
        users = (pod(name, claims={"it": "counted"}) for name in TOGETHER)
        uid = await allocated(team, "counted", node.name, COUNTED, "counter", {}, *users)
        await asyncio.gather(*(team.runs(name) for name in TOGETHER))
        await team.create(pod("is-late", claims={"it": "counted"}))
        await team.runs("is-late")
        assert execute(cluster, team, "is-late", "echo $COUNTED").split() == ["counted"]

        await end(cluster, team)

        assert book.read_text().splitlines() == [f"prepare {uid}"]
        await team.delete(PODS, "is-late")
        assert book.read_text().splitlines() == [f"prepare {uid}", f"unprepare {uid}"]


async def end(cluster: Cluster, team: Namespace) -> None:
    """All but the pod that came last end, each in its way."""
    touch(cluster, team, "finishes")
    await team.pod("finishes", lambda p: p.status.phase == "Succeeded", "is finished")
    await team.client.delete(PODS, "is-forced", team.name, grace_period_seconds=0)
    await team.delete(PODS, "is-deleted")
