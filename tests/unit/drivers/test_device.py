"""The device driver: its promises, its reasons, and that no device is ever held twice."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.api.builtin import (
    DeviceAttribute,
    DeviceCapacity,
    ObjectMeta,
    Pool,
    ResourceSlice,
    ResourceSliceSpec,
    SliceDevice,
)
from parley.drivers.device import DeviceDriver, DeviceParameters
from parley.drivers.device.driver import NotEnough
from parley.sdk import Capacity, ClassOnNodes, Device, Held, NoParameters
from parley.sdk.checks import BadParameters, parse_parameters
from parley.sdk.testing import Scenario, check_driver, check_room_is_told_of_viable_nodes, request


def device(name: str, model: str = "a100", memory: str = "40Gi", slices: int = 1) -> SliceDevice:
    return SliceDevice(
        name=name,
        attributes={"model": DeviceAttribute(string=model)},
        capacity={"memory": DeviceCapacity(value=memory), "slices": DeviceCapacity(value=slices)},
    )


def slice_of(
    node: str, *devices: SliceDevice, generation: int = 1, name: str = "", driver: str = ""
) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(name=name or f"{node}-slice"),
        spec=ResourceSliceSpec(
            driver=driver or DeviceDriver.name,
            node_name=node,
            pool=Pool(name=node, generation=generation),
            devices=list(devices),
        ),
    )


def stocked() -> DeviceDriver:
    driver = DeviceDriver()
    driver.observe(None, slice_of("a", device("gpu-0")))
    driver.observe(None, slice_of("b", device("gpu-0"), device("gpu-1", "h100", "80Gi", slices=2)))
    return driver


@pytest.mark.parametrize(
    "parameters",
    [
        [{}],
        [{"count": 2}],
        [{"model": "h100"}, {}],
        [{"shared": True, "memory": "40Gi"}],
        [{"shared": True}, {"shared": True, "model": "h100"}],
    ],
    ids=str,
)
async def test_it_keeps_the_promises_of_a_driver(parameters: list[dict[str, Any]]) -> None:
    await check_driver(Scenario(stocked, ("a", "b", "c"), (request(stocked(), "p", *parameters),)))


REASONS = [
    ([{"count": 2}], "a", "1 of 1 device free, 2 wanted"),
    ([{"model": "h100"}], "a", "0 of 0 devices of model h100 free, 1 wanted"),
    ([{"memory": "60Gi"}], "a", "0 of 0 devices with 60Gi free, 1 wanted"),
    ([{}], "c", "has no devices"),
    ([{}, {}], "a", "1 device free, but not for all 2 claims of the pod together"),
    ([{"shared": True, "memory": "41Gi"}], "b", "0 of 0 shared devices with 41Gi free, 1 wanted"),
]


@pytest.mark.parametrize(("parameters", "node", "reason"), REASONS, ids=[case[2] for case in REASONS])
def test_it_says_what_a_node_lacks(parameters: list[dict[str, Any]], node: str, reason: str) -> None:
    driver = stocked()
    answers = driver.viable(request(driver, "p", *parameters), [node])
    assert answers["claim-0"].reasons == {node: reason}


def test_it_proposes_nodes_that_would_do() -> None:
    driver = stocked()
    assert driver.viable(request(driver, "p", {"model": "h100"}), ["a"])["claim-0"].alternatives == ("b",)
    assert driver.viable(request(driver, "p", {"model": "v100"}), ["a"])["claim-0"].alternatives == ()
    assert driver.viable(request(driver, "p", {}), ["a"])["claim-0"].alternatives is None


def test_a_device_that_ordinary_dra_took_is_in_use_until_it_is_given_back() -> None:
    driver = stocked()
    driver.restore(Held("foreign", None, (Device("a", "gpu-0"),), None))
    wanted = request(driver, "p", {})
    assert driver.viable(wanted, ["a"])["claim-0"].viable == ()
    driver.forget("foreign")
    assert driver.viable(wanted, ["a"])["claim-0"].viable == ("a",)


async def test_the_same_question_gets_another_answer_when_devices_were_taken_or_given_back() -> None:
    driver = stocked()
    asked, other = request(driver, "p", {}), request(driver, "other", {})
    assert driver.viable(asked, ["a"])["claim-0"].viable == ("a",)
    await driver.allocate(other, "a")
    assert driver.viable(asked, ["a"])["claim-0"].viable == ()
    await driver.deallocate(other.claims[0].uid)
    assert driver.viable(asked, ["a"])["claim-0"].viable == ("a",)


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    driver = DeviceDriver()
    old = slice_of("a", device("gpu-0"), generation=1, name="one")
    driver.observe(None, old)
    driver.observe(None, slice_of("a", device("gpu-1"), generation=2, name="two"))
    wanted = request(driver, "p", {"count": 2})
    assert driver.viable(wanted, ["a"])["claim-0"].reasons == {"a": "1 of 1 device free, 2 wanted"}
    assert not driver.observe(None, slice_of("a", device("x"), name="three", driver="other.example.com"))


async def test_a_device_that_is_published_no_more_stays_held() -> None:
    driver = stocked()
    wanted = request(driver, "p", {})
    await driver.allocate(wanted, "a")
    published = slice_of("a", device("gpu-0"))
    driver.observe(published, None)
    driver.observe(None, published)
    assert driver.viable(request(driver, "q", {}), ["a"])["claim-0"].viable == ()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"count": 0}, "count=0: input should be greater than or equal to 1"),
        ({"count": "two"}, "count='two': input should be a valid integer"),
        ({"modle": "x"}, "modle='x' is not a parameter of this driver"),
        (
            {"memory": "lots"},
            "memory='lots': 'lots' is not a quantity; write a number such as 2, 250m or 16Gi",
        ),
        (
            {"memory": "9" * 1000},
            f"memory='{'9' * 99}... (1002 characters): string should have at most 64 characters",
        ),
        ({"model": "m" * 65}, f"model='{'m' * 65}': string should have at most 64 characters"),
        ({"count": 10**9}, "count=1000000000: input should be less than or equal to 32"),
        ({"x" * 300: 1}, f"{'x' * 100}... (300 characters)=1 is not a parameter of this driver"),
    ],
)
def test_bad_parameters_name_field_and_value(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(BadParameters) as caught:
        parse_parameters(DeviceParameters, raw, "claim team/gpu")
    known = "(known parameters: count, memory, model, shared)"
    assert str(caught.value) == f"parameters of claim team/gpu: {message} {known}"


wanted_claims = st.lists(
    st.fixed_dictionaries({"count": st.integers(1, 2), "shared": st.booleans()}), min_size=1, max_size=2
)


@given(st.lists(st.tuples(wanted_claims, st.sampled_from(["a", "b"]), st.booleans()), max_size=12))
@settings(max_examples=150, deadline=None)
async def test_no_device_is_ever_held_twice(steps: list[tuple[list[dict[str, Any]], str, bool]]) -> None:
    driver = stocked()
    held: dict[str, tuple[bool, tuple[Device, ...]]] = {}
    for number, (claims, node, give_back) in enumerate(steps):
        wanted = request(driver, f"p{number}", *claims)
        viable = node in driver.viable(wanted, [node])["claim-0"].viable
        if viable:
            allocations = await driver.allocate(wanted, node)
            for claim in wanted.claims:
                held[claim.uid] = (claim.parameters.shared, allocations[claim.name].devices)
        if give_back and held:
            uid = next(iter(held))
            await driver.deallocate(uid)
            del held[uid]
        assert_never_more_than_there_is(held)


HARD_NODE = [device(f"gpu-{i:02}", "xyz"[i % 3], f"{1 + i * 7 % 16}Gi", slices=2 + i % 4) for i in range(16)]
HARD_CLAIMS: list[dict[str, Any]] = [
    *({"memory": f"{j * 7 % 8}Gi", **({"model": "xy"[j % 3 - 1]} if j % 3 else {})} for j in range(8)),
    *(
        {"shared": True, "memory": f"{j % 3 * 512}Mi", **({"model": "xyz"[j % 4 - 1]} if j % 4 else {})}
        for j in range(32)
    ),
]
TOO_MANY = (
    "too many combinations to search: have the pod request less at once, with fewer claims (`count` takes several "
    "devices with one) or claims that are alike"
)


def with_hard_nodes(*others: SliceDevice, hard: int = 1) -> tuple[DeviceDriver, list[str]]:
    """Nodes of which it takes too long to find out whether HARD_CLAIMS fit, and one with `others`."""
    driver, nodes = DeviceDriver(), [f"hard-{number}" for number in range(hard)]
    for number, node in enumerate(nodes):
        driver.observe(None, slice_of(node, *HARD_NODE, device("last", memory=f"{100 + number}Mi")))
    driver.observe(None, slice_of("other", *others))
    return driver, nodes


async def test_what_takes_too_long_to_find_out_is_not_viable_and_says_so() -> None:
    driver, (node,) = with_hard_nodes(device("small"))
    wanted = request(driver, "p", *HARD_CLAIMS)
    answer = driver.viable(wanted, [node])["claim-0"]
    assert answer.viable == ()
    assert answer.reasons == {node: TOO_MANY}
    assert answer.alternatives == ()
    with pytest.raises(NotEnough) as caught:
        await driver.allocate(wanted, node)
    assert str(caught.value) == f"node {node}: {TOO_MANY}"
    assert driver.viable(request(driver, "q", {}), [node])["claim-0"].viable == (node,)


def test_what_is_said_about_very_many_claims_is_about_all_together() -> None:
    driver = DeviceDriver()
    driver.observe(None, slice_of("a", *(device(f"gpu-{i:03}", memory=f"{i // 4}Gi") for i in range(320))))
    claims = [{"memory": f"{i // 2}Gi", "count": 8} for i in range(128)]
    answers = driver.viable(request(driver, "p", *claims), ["a"])
    assert answers["claim-0"].reasons == {"a": "320 devices free, but not for all 128 claims of the pod together"}
    assert answers["claim-127"].reasons == {"a": "has no devices for all 128 claims of the pod together"}


def test_nodes_that_take_long_leave_time_for_the_others() -> None:
    plenty = [device(f"gpu-{i}", model, "100Gi", slices=32) for i, model in enumerate("xyz" * 8)]
    driver, nodes = with_hard_nodes(*plenty, hard=100)
    answer = driver.viable(request(driver, "p", *HARD_CLAIMS), [*nodes, "other"])["claim-0"]
    assert answer.viable == ("other",)
    assert set(answer.reasons.values()) == {TOO_MANY}


@pytest.mark.parametrize(
    ("nodes", "devices", "claims"), [(1000, 8, 2), (5000, 8, 8), (128, 24, 8), (40, 32, 24)], ids=str
)
def test_many_nodes_are_found_out_about_as_few_are(nodes: int, devices: int, claims: int) -> None:
    driver, names = DeviceDriver(), [f"n{number}" for number in range(nodes)]
    for node in names:
        driver.observe(None, slice_of(node, *(device(f"gpu-{i}", memory=f"{40 + i}Gi") for i in range(devices))))
    wanted = request(driver, "p", *({"memory": f"{40 + i}Gi"} for i in range(claims)))
    assert driver.viable(wanted, names)["claim-0"].viable == tuple(names)


def test_it_does_not_say_that_no_other_node_will_do_before_it_has_looked_at_all() -> None:
    driver, nodes = with_hard_nodes(device("small"), hard=100)
    assert driver.viable(request(driver, "p", *HARD_CLAIMS), nodes[:1])["claim-0"].alternatives is None


many_claims = st.lists(
    st.fixed_dictionaries(
        {
            "count": st.integers(1, 32),
            "shared": st.booleans(),
            "memory": st.integers(0, 40).map(lambda gi: f"{gi}Gi"),
        },
        optional={"model": st.sampled_from("xyz")},
    ),
    min_size=1,
    max_size=40,
)
many_devices = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(1, 80), st.integers(1, 8)), min_size=1, max_size=40
)


@given(st.lists(many_devices, min_size=1, max_size=6), many_claims)
@settings(max_examples=60, deadline=None)
async def test_what_is_viable_can_be_allocated(
    published: list[list[tuple[str, int, int]]], claims: list[dict[str, Any]]
) -> None:
    driver, nodes = DeviceDriver(), [f"n{number}" for number in range(len(published))]
    for node, devices in zip(nodes, published, strict=True):
        owned = (device(f"d{i}", model, f"{gi}Gi", slices) for i, (model, gi, slices) in enumerate(devices))
        driver.observe(None, slice_of(node, *owned))
    wanted = request(driver, "p", *claims)
    for node in driver.viable(wanted, nodes)["claim-0"].viable:
        allocations = await driver.allocate(wanted, node)
        assert [len(set(allocations[c.name].devices)) for c in wanted.claims] == [
            c.parameters.count for c in wanted.claims
        ]
        for claim in wanted.claims:
            await driver.deallocate(claim.uid)


def assert_never_more_than_there_is(held: dict[str, tuple[bool, tuple[Device, ...]]]) -> None:
    shares = {Device("a", "gpu-0"): 1, Device("b", "gpu-0"): 1, Device("b", "gpu-1"): 2}
    whole = Counter(d for shared, devices in held.values() if not shared for d in devices)
    parts = Counter(d for shared, devices in held.values() if shared for d in devices)
    for one, count in shares.items():
        assert whole[one] <= 1
        assert parts[one] <= (0 if whole[one] else count)
    assert set(whole) | set(parts) <= set(shares)


def test_limits_are_in_devices() -> None:
    driver = stocked()
    claims = request(driver, "p", {}, {"count": 3}, {"count": 2, "shared": True}).claims
    assert [driver.units(claim) for claim in claims] == [1, 3, 2]


async def test_what_is_free_are_the_devices_of_which_nobody_holds_a_share() -> None:
    driver = stocked()
    of = ClassOnNodes("gpu", NoParameters(), ("a", "b", "without"))
    assert driver.capacity(of) == Capacity(3, 3)
    await driver.allocate(request(driver, "p", {}), "a")
    await driver.allocate(request(driver, "q", {"model": "h100", "shared": True}), "b")
    assert driver.capacity(of) == Capacity(3, 1)
    assert driver.capacity(ClassOnNodes("gpu", NoParameters(), ("a",))) == Capacity(1, 0)


class Forgetful(DeviceDriver):
    """Its order leaves out a node that has devices."""

    def fullest(self, request: Any) -> list[str]:
        return [node for node in super().fullest(request) if node != "a"]


def test_the_kit_finds_an_order_that_leaves_out_a_viable_node() -> None:
    def stocked_forgetful() -> Forgetful:
        driver = Forgetful()
        for node in "ab":
            driver.observe(None, slice_of(node, device("gpu-0")))
        return driver

    scenario = Scenario(stocked_forgetful, ("a", "b"), ())
    with pytest.raises(AssertionError, match="leaves out nodes that are viable"):
        check_room_is_told_of_viable_nodes(scenario, request(stocked_forgetful(), "p", {}))
