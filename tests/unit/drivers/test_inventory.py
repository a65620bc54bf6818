"""What devices there are by the ResourceSlices of nodes, in whatever order they come; and only a node's own."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from structlog.testing import capture_logs
from tests.support.effort import calls

from parley.api.builtin import DeviceCapacity, ObjectMeta, Pool, ResourceSlice, ResourceSliceSpec, SliceDevice
from parley.drivers.device.inventory import MOST_DEVICES, Inventory
from parley.sdk import Device

DRIVER = "device.parley.dev"
NODES = ("a", "b", "c")


def slice_of(
    name: str, node: str, *devices: str, pool: str | None = None, generation: int = 1, driver: str = DRIVER
) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=node,
            pool=Pool(name=node if pool is None else pool, generation=generation),
            devices=[SliceDevice(name=d, capacity={"slices": DeviceCapacity(value=2)}) for d in devices],
        ),
    )


def names(inventory: Inventory, node: str) -> list[str]:
    return [f"{device.pool}/{device.device}" for device in inventory.kinds(node)]


def test_a_slice_of_another_nodes_pool_is_ignored_and_told() -> None:
    inventory = Inventory(DRIVER)
    own, false = slice_of("own", "a", "gpu-0"), slice_of("false", "b", "gpu-0", pool="a", generation=9)
    inventory.publish(None, own)
    with capture_logs() as logs:
        assert inventory.publish(None, false) == ()
    assert logs == [
        {
            "event": "a ResourceSlice is ignored: its pool has to have the name of its node, spec.nodeName",
            "log_level": "warning",
            "slice": "false",
            "driver": DRIVER,
            "node": "b",
            "pool": "a",
        }
    ]
    assert names(inventory, "a") == ["a/gpu-0"]
    assert names(inventory, "b") == []
    assert inventory.publish(false, None) == ()
    assert inventory.publish(own, None) == ("a",)
    assert inventory.nodes() == ()


def test_a_slice_for_all_nodes_is_ignored() -> None:
    inventory = Inventory(DRIVER)
    assert inventory.publish(None, slice_of("everywhere", "", "gpu-0", pool="shared")) == ()
    assert inventory.publish(None, slice_of("nowhere", "", "gpu-0", pool="")) == ()
    assert inventory.nodes() == ()


def test_a_slice_that_moves_to_another_node_leaves_the_first() -> None:
    inventory = Inventory(DRIVER)
    here, there = slice_of("s", "a", "gpu-0"), slice_of("s", "b", "gpu-0")
    inventory.publish(None, here)
    assert inventory.publish(here, there) == ("a", "b")
    assert inventory.nodes() == ("b",)
    foreign = slice_of("s", "b", "gpu-0", driver="other.example.com")
    assert inventory.publish(there, foreign) == ("b",)
    assert inventory.nodes() == ()


def test_what_a_slice_costs_does_not_grow_with_those_that_its_node_has() -> None:
    """Whoever has a node plugin's token may make thousands."""
    inventory = Inventory(DRIVER)
    slices = [slice_of(f"s{n:02}", "a", *(f"gpu-{n}-{m}" for m in range(128))) for n in range(32)]

    def publish(some: Sequence[ResourceSlice]) -> None:
        for one in some:
            inventory.publish(None, one)
            assert inventory.kinds("a")

    first = calls(lambda: publish(slices[:4]))
    publish(slices[4:-4])
    assert calls(lambda: publish(slices[-4:])) < 2 * first
    assert len(names(inventory, "a")) == 32 * 128


def test_of_a_node_that_publishes_very_many_devices_the_first_count() -> None:
    inventory = Inventory(DRIVER)
    with capture_logs() as logs:
        for n in reversed(range(40)):
            inventory.publish(None, slice_of(f"s{n:02}", "a", *(f"gpu-{n}-{m}" for m in range(128))))
            assert inventory.kinds("a")
    assert len(names(inventory, "a")) == MOST_DEVICES == 32 * 128
    assert "a/gpu-31-127" in names(inventory, "a")
    assert "a/gpu-32-0" not in names(inventory, "a")
    assert [entry["event"] for entry in logs] == ["a node publishes too many devices: only the first count"]
    inventory.publish(None, slice_of("new", "a", "gpu", generation=2))
    assert names(inventory, "a") == ["a/gpu"]


@dataclass(frozen=True)
class Holding:
    devices: tuple[Device, ...]
    shared: bool


slices = st.builds(
    slice_of,
    st.sampled_from(["one", "two", "three"]),
    st.sampled_from([*NODES, ""]),
    st.sampled_from(["gpu-0", "gpu-1"]),
    st.sampled_from(["gpu-1", "gpu-2"]),
    pool=st.sampled_from([None, None, None, *NODES]),
    generation=st.integers(1, 3),
    driver=st.sampled_from([DRIVER, DRIVER, DRIVER, "other.example.com"]),
)
held_devices = st.lists(
    st.builds(Device, st.sampled_from(NODES), st.sampled_from(["gpu-0", "gpu-1", "gpu-2"])),
    unique=True,
    max_size=3,
).map(tuple)


class Life(RuleBasedStateMachine):
    """Slices come, change, go, come and go twice; claims hold and let go. The model is a list of slices."""

    @initialize()
    def begin(self) -> None:
        self.inventory = Inventory(DRIVER)
        self.slices: dict[str, ResourceSlice] = {}
        self.held: dict[str, Holding] = {}

    @rule(new=slices, seen=st.booleans())
    def publish(self, new: ResourceSlice, seen: bool) -> None:
        """`seen`: with the state before, as a watch has it; without, as after a list."""
        name = new.metadata.name
        self.inventory.publish(self.slices.get(name) if seen else None, new)
        if not seen:
            self.inventory.publish(None, new)
        self.slices[name] = new

    @rule(new=slices)
    def change_something(self, new: ResourceSlice) -> None:
        old = self.slices.get(new.metadata.name)
        if old is not None:
            new = replace_generation(old, old.spec.pool.generation + 1)
            self.inventory.publish(old, new)
            self.slices[new.metadata.name] = new

    @rule(name=st.sampled_from(["one", "two", "three"]), twice=st.booleans())
    def withdraw(self, name: str, twice: bool) -> None:
        old = self.slices.pop(name, None) or slice_of(name, "a", "gpu-0")
        for _ in range(1 + twice):
            self.inventory.publish(old, None)

    @rule(uid=st.sampled_from(["p", "q"]), devices=held_devices, shared=st.booleans())
    def hold(self, uid: str, devices: tuple[Device, ...], shared: bool) -> None:
        self.inventory.hold(uid, devices, shared=shared)
        self.held[uid] = Holding(devices, shared)

    @rule(uid=st.sampled_from(["p", "q"]))
    def release(self, uid: str) -> None:
        self.inventory.release(uid)
        self.held.pop(uid, None)

    @invariant()
    def each_node_has_what_its_own_slices_say(self) -> None:
        with_slices = {s.spec.node_name for s in self._own()}
        assert set(self.inventory.nodes()) == with_slices
        for node in NODES:
            assert set(names(self.inventory, node)) == self._published(node)

    @invariant()
    def what_is_held_is_not_free(self) -> None:
        whole = {d for h in self.held.values() if not h.shared for d in h.devices}
        shares = Counter(d for h in self.held.values() if h.shared for d in h.devices)
        for node in NODES:
            free = {name: count for (_, count), found in self.inventory.stock(node).items() for name in found}
            expected = {}
            for name in self._published(node):
                device = Device(*name.split("/"))
                left = 0 if device in whole else 2 - shares[device]
                if left > 0:
                    expected[name] = left
            assert free == expected

    def _own(self) -> list[ResourceSlice]:
        return [
            s
            for s in self.slices.values()
            if s.spec.driver == DRIVER and s.spec.node_name and s.spec.pool.name == s.spec.node_name
        ]

    def _published(self, node: str) -> set[str]:
        own = [s for s in self._own() if s.spec.node_name == node]
        newest = max((s.spec.pool.generation for s in own), default=0)
        return {
            f"{node}/{device.name}" for s in own if s.spec.pool.generation == newest for device in s.spec.devices
        }


def replace_generation(slice_: ResourceSlice, generation: int) -> ResourceSlice:
    spec = slice_.spec
    return slice_of(
        slice_.metadata.name,
        spec.node_name,
        *(device.name for device in spec.devices),
        pool=spec.pool.name,
        generation=generation,
        driver=spec.driver,
    )


TestLife = Life.TestCase
