"""When the kubelet has a claim prepared, and which containers of a pod see what it gave."""

import os
import stat
from pathlib import Path

import pytest
import yaml
from tests.cluster.containers import LOOK, TELL, devices_seen, named, seen
from tests.cluster.manifests import UNTIL_FINISHED, container, pod
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import allocated, plugin
from tests.cluster.nodes import PREPARED, UNPREPARED, calls, prepared
from tests.cluster.watching import until_one

from parley.api.resources import PODS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

LATER = "later.example.com"

LOOKED_AT = {"metadata": {"annotations": {"parley.dev/test": "look"}}}
"""A kubelet asks again a while after a failure, and at once when anything about the pod changes."""


async def test_a_claim_that_could_not_be_prepared_is_when_the_kubelet_asks_again(
    cluster: Cluster, team: Namespace, tmp_path: Path
) -> None:
    path, file, node = tmp_path / "card", tmp_path / "devices.yaml", cluster.node("node-b")
    device = {"name": "card", "model": "m", "deviceNodes": [str(path)]}
    file.write_text(yaml.safe_dump({"driver": LATER, "devices": [device]}))
    with plugin(cluster, node, "later", file, state=tmp_path / "state"):
        handle = {"devices": [{"pool": node.name, "device": "card"}]}
        user = pod("first-lacks", claims={"it": "first-lacks"})
        uid = await allocated(team, "first-lacks", node.name, LATER, "card", handle, user)
        assert await team.told("first-lacks", "FailedPrepareDynamicResources") == (
            "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for"
            f" ResourceClaim first-lacks: claim {team.name}/first-lacks: device='card' is not a device of node"
            " 'node-b', which has none: bring the device back, or delete the pod"
        )

        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        await team.client.patch(PODS, "first-lacks", LOOKED_AT, team.name)

        await team.runs("first-lacks")
        assert calls(cluster, node.name, PREPARED, program="later") == [uid]
        await team.delete(PODS, "first-lacks")
        assert calls(cluster, node.name, UNPREPARED, program="later") == [uid]


async def test_a_claim_that_no_container_uses_is_prepared_nevertheless_and_seen_by_none(
    cluster: Cluster, team: Namespace
) -> None:
    plain = container("main", LOOK + UNTIL_FINISHED)

    await team.create(pod("idle", templates={"gpu": "one"}, containers=[plain]))

    node = (await team.runs("idle")).spec.node_name
    (mirror,) = await team.mirrors("idle")
    assert calls(cluster, node, PREPARED).count(mirror.metadata.uid) == 1
    assert prepared(cluster.node(node)).keys() == {mirror.metadata.uid}
    assert not [line for line in seen(cluster, team, "idle") if "gives" in line or "PARLEY" in line]


async def test_each_container_sees_the_claims_that_it_names_init_containers_and_sidecars_too(
    cluster: Cluster, team: Namespace
) -> None:
    look = LOOK + UNTIL_FINISHED
    first = [
        container("begins", TELL, "left"),
        container("beside", look, "left", restartPolicy="Always"),
        container("goes-on", TELL, "left", "right"),
    ]
    then = [
        container("main", look, "left"),
        container("other", look, "right"),
        container("both", look, "left", "right"),
        container("plain", look),
    ]
    entries = {"left": "one", "right": "one"}

    await team.create(pod("many", templates=entries, initContainers=first, containers=then))

    await team.runs("many")
    mirrors = await team.mirrors("many")
    held = prepared(cluster.node("node-b"))
    of = {m.metadata.annotations["resource.kubernetes.io/pod-claim-name"]: held[m.metadata.uid] for m in mirrors}
    left, right = sorted(of["left"]), sorted(of["right"])
    assert sorted(left + right) == ["b-0", "b-1"]
    assert await last_words(team, "many", "begins") == left
    assert await last_words(team, "many", "goes-on") == ["b-0", "b-1"]
    expected = {"beside": left, "main": left, "other": right, "both": ["b-0", "b-1"], "plain": []}
    for name, devices in expected.items():
        assert devices_seen(cluster, team, "many", name) == devices, name
    asked = calls(cluster, "node-b", PREPARED)
    assert [asked.count(mirror.metadata.uid) for mirror in mirrors] == [1, 1]


async def last_words(team: Namespace, name: str, container: str) -> list[str]:
    """The devices that an init container which ended had."""
    found = await until_one(team.client, PODS.untyped(), name, lambda _: True, "is there", namespace=team.name)
    (status,) = [s for s in found["status"]["initContainerStatuses"] if s["name"] == container]
    return named(status["state"]["terminated"]["message"].splitlines())
