"""The nodes that a pod's volumes tie it to: those of the PersistentVolumes that its claims are bound to."""

from typing import Any

from tests.unit.control.builders import NAMESPACE, World, a_pod, played

from parley.api.resources import VOLUME_CLAIMS, VOLUMES
from parley.api.selectors import matches
from parley.control.caches.volumes import volume_claims

CLAIMED = {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}
EPHEMERAL = {"name": "scratch", "ephemeral": {}}


async def volume(world: World, name: str, *nodes: str) -> None:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [*nodes]}
    required = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    await world.put(VOLUMES, {"metadata": {"name": name}, "spec": {"nodeAffinity": required} if nodes else {}})


async def claim(world: World, name: str, volume: str, phase: str = "Bound") -> None:
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
    manifest = {**kind, "spec": {"volumeName": volume}, "status": {"phase": phase}}
    await world.admin.create(VOLUME_CLAIMS, manifest, NAMESPACE)
    await world.seen()


def test_a_claim_is_named_or_called_after_pod_and_volume() -> None:
    pod = a_pod(volumes=[CLAIMED, EPHEMERAL, {"name": "code", "configMap": {}}])

    assert [*volume_claims(pod)] == [(NAMESPACE, "disk"), (NAMESPACE, "p-scratch")]


def test_a_pod_without_volumes_is_known_and_makes_nobody_read_them() -> None:
    async def story(world: World) -> None:
        pod = a_pod()
        assert world.cluster.volumes.known(pod)
        assert world.cluster.volumes.selectors(pod) == ()
        await claim(world, "disk", "v-1")
        assert world.cluster.volumes.selectors(a_pod(volumes=[CLAIMED])) == ()  # nobody wanted them yet

    played(story)


def test_bound_claims_tie_a_pod_to_the_nodes_of_their_volumes_once_these_are_read() -> None:
    async def story(world: World) -> None:
        await volume(world, "v-1", "node-1")
        await claim(world, "disk", "v-1")
        pod = a_pod(volumes=[CLAIMED])
        assert not world.cluster.volumes.known(pod)
        await world.seen()

        assert world.cluster.volumes.known(pod)
        ((name, selector),) = world.cluster.volumes.selectors(pod)
        nodes = [await world.node("node-1"), await world.node("node-2")]
        assert (name, [matches(selector, node) for node in nodes]) == ("disk", [True, False])

    played(story)


def test_what_is_not_bound_or_can_be_used_everywhere_ties_it_to_none() -> None:
    async def story(world: World) -> None:
        await volume(world, "anywhere")
        await volume(world, "v-1", "node-1")
        await claim(world, "disk", "anywhere")
        await claim(world, "p-scratch", "v-1", phase="Pending")
        pods: list[Any] = [a_pod(volumes=[CLAIMED]), a_pod(volumes=[EPHEMERAL])]
        world.cluster.volumes.known(pods[0])
        await world.seen()

        assert [world.cluster.volumes.selectors(pod) for pod in pods] == [(), ()]

    played(story)
