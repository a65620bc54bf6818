"""The caches, and the sums and indexes over them, which listeners find up to date."""

from typing import Any

import pytest
from tests.unit.control.builders import NAMESPACE, World, a_pod, played

from parley.api.builtin import BuiltinClaim, Node, Pod
from parley.api.models import ResourceClaim
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, NODES, PODS
from parley.control.objects.class_request import ClassRequest
from parley.control.objects.pod import is_done, is_terminal, reference
from parley.control.objects.standin import stand_in
from parley.kube.cache import Key


class Heard:
    """A listener that looks at the cluster while it hears."""

    def __init__(self, world: World) -> None:
        self._cluster = world.cluster
        self.stale: list[str] = []
        self.room: list[str] = []
        self.names: list[str] = []

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self._compare("pod", new, old, lambda key: self._cluster.pod(key))

    def mirror_changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        self._compare("mirror", new, old, lambda key: self._cluster.mirror(key))

    def claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        self._compare("claim", new, old, lambda key: self._cluster.claim(key))

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        self._compare("node", new, old, lambda key: self._cluster.node(key[1]))

    def _compare(self, kind: str, new: Any, old: Any, cached: Any) -> None:
        meta = (new or old).metadata
        self.names.append(f"{kind} {meta.name}")
        if cached((meta.namespace, meta.name)) is not new:
            self.stale.append(meta.name)

    def usage_reduced(self, node: str) -> None:
        self.room.append(node)

    def volume_changed(self, claim: Key) -> None: ...

    def nothing(self, old: Any, new: Any) -> None: ...

    def mirror_refused(self, item: Any) -> None: ...

    template_mirror_changed = class_changed = scheduling_changed = nothing
    template_changed = slice_changed = release_changed = namespace_changed = nothing
    device_class_changed = nothing


def test_listeners_hear_after_the_cache_has_it() -> None:
    async def story(world: World) -> None:
        heard = Heard(world)
        world.cluster.listen(heard)
        await world.node("node-1")
        pod = await world.pod(templates=["licence"])
        await world.generated(pod)
        await world.claim()
        for resource, name in ((CLAIMS, "c"), (BUILTIN_CLAIMS, "p-licence"), (PODS, "p"), (NODES, "node-1")):
            await world.delete(resource, name)
        assert heard.stale == []
        assert set(heard.names) == {"node node-1", "pod p", "mirror p-licence", "claim c"}

    played(story)


def test_a_generated_claim_is_found_by_its_pod_before_the_pods_status_names_it() -> None:
    async def story(world: World) -> None:
        pod = await world.pod(templates=["licence"])
        assert world.cluster.generated.of_entry(pod, "licence") is None
        await world.generated(pod)
        found = world.cluster.generated.of_entry(pod, "licence")
        assert found is world.cluster.mirror((NAMESPACE, "p-licence"))
        assert world.cluster.generated.of_entry(pod, "other") is None
        assert world.cluster.generated.of_entry(a_pod("p"), "licence") is None
        await world.delete(BUILTIN_CLAIMS, "p-licence")
        assert world.cluster.generated.of_entry(pod, "licence") is None

    played(story)


def test_pods_are_found_by_the_claims_that_they_name() -> None:
    async def story(world: World) -> None:
        await world.pod("first", claims=["c"])
        await world.pod("second", claims=["c", "d"], templates=["t"])
        named = {key: [p.metadata.name for p in world.cluster.pods_naming((NAMESPACE, key))] for key in "cdt"}
        assert named == {"c": ["first", "second"], "d": ["second"], "t": []}

    played(story)


def test_stand_ins_are_found_by_their_pod() -> None:
    async def story(world: World) -> None:
        pod = await world.pod(templates=["licence"])
        await world.claim("named")
        await world.put(CLAIMS, stand_in(pod, "licence", "p-licence", ClassRequest("licence", None)))
        assert [claim.metadata.name for claim in world.cluster.stand_ins(reference(pod))] == ["p-licence"]

    played(story)


def test_a_node_has_what_its_pods_left_and_whoever_waits_hears_when_it_is_more() -> None:
    async def story(world: World) -> None:
        heard = Heard(world)
        world.cluster.listen(heard)
        await world.node("node-1")
        assert world.cluster.allocatable("node-1")["cpu"] == 8_000
        requests = {"resources": {"requests": {"cpu": "1"}}}
        pod = await world.pod(nodeName="node-1", containers=[{"name": "main", "image": "none", **requests}])
        usage = world.cluster.usage
        assert (usage.pods("node-1"), usage.used("node-1")["cpu"]) == (1, 1_000)
        await world.patch_status(PODS, pod.metadata.name, {"phase": "Succeeded"})
        assert (usage.pods("node-1"), heard.room) == (0, [])  # of the pod it has heard
        assert heard.names.count("pod p") == 2
        world.cluster.usage.assume(await world.pod("q"), "node-1")
        await world.delete(PODS, "q")
        assert (usage.pods("node-1"), heard.room) == (0, ["node-1"])

    played(story)


def test_a_pod_counts_for_its_node_before_the_binding_is_seen_and_once_when_it_is() -> None:
    async def story(world: World) -> None:
        pod = await world.pod()
        world.cluster.usage.assume(pod, "node-1")
        assert world.cluster.usage.pods("node-1") == 1
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-1"}}
        await world.admin.create_subresource(PODS, "p", "binding", binding, NAMESPACE)
        await world.seen()
        assert world.cluster.usage.pods("node-1") == 1
        await world.admin.delete(PODS, "p", NAMESPACE, grace_period_seconds=0)
        await world.seen()
        assert world.cluster.usage.pods("node-1") == 0

    played(story)


def test_nodes_are_known_in_the_order_in_which_they_came() -> None:
    async def story(world: World) -> None:
        for name in ("z", "a", "m"):
            await world.node(name)
        await world.admin.patch(NODES, "z", {"metadata": {"labels": {"new": "label"}}})
        await world.delete(NODES, "a")
        assert list(world.cluster.node_names()) == ["z", "m"]
        assert world.cluster.allocatable("a") == {}

    played(story)


def test_our_own_write_is_remembered_as_long_as_the_object_is_there() -> None:
    async def story(world: World) -> None:
        claim = await world.claim()
        newer = await world.admin.patch(CLAIMS, "c", {"metadata": {"labels": {"a": "b"}}}, NAMESPACE)
        world.cluster.own_writes.note(newer.metadata)
        assert world.cluster.own_writes.is_stale(claim.metadata)
        assert not world.cluster.own_writes.is_stale(newer.metadata)
        await world.delete(CLAIMS, "c")
        assert not world.cluster.own_writes.is_stale(claim.metadata)
        world.cluster.own_writes.note(newer.metadata)
        assert not world.cluster.own_writes.is_stale(claim.metadata)

    played(story)


@pytest.mark.parametrize(
    ("pod", "terminal", "done"),
    [
        (a_pod(), False, False),
        (a_pod(phase="Succeeded"), True, True),
        (a_pod(phase="Failed"), True, True),
        (a_pod(deleted=True), False, True),
        (a_pod(node="node-1", deleted=True), False, False),
        (a_pod(node="node-1", phase="Running"), False, False),
    ],
    ids=["waiting", "succeeded", "failed", "deleted-before-bound", "terminating", "running"],
)
def test_when_nothing_is_negotiated_for_a_pod_any_more(pod: Pod, terminal: bool, done: bool) -> None:
    assert (is_terminal(pod), is_done(pod)) == (terminal, done)
