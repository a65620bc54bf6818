"""What a driver may answer and allocate; what it is told when it breaks its contract."""

import re
from dataclasses import replace
from typing import Any

import pytest

from parley.negotiation.answers import Answer
from parley.negotiation.availability import AvailableOn
from parley.sdk import Allocation, Device, Driver, NodeLabels, NoParameters, Reserve
from parley.sdk.allocation_checks import check_allocations
from parley.sdk.checks import (
    DriverFault,
    check_answers,
    failure_text,
    fault_text,
)
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.parameters import RawClaim
from parley.sdk.testing import request
from parley.sdk.values import PodReference, Request


class Nothing(Driver[NoParameters, NoParameters]):
    """Allocates what it is told to, so that a test can break the contract."""

    name = "nothing.example.com"
    parameters = class_parameters = NoParameters

    def __init__(self, allocation: Allocation | None = None) -> None:
        self.allocation = allocation
        self.given_back: list[str] = []

    def viable(self, request: Request[Any, Any], nodes: Any) -> dict[str, Answer]:
        return {claim.name: Answer(tuple(nodes)) for claim in request.claims}

    async def allocate(self, request: Request[Any, Any], node: str) -> dict[str, Allocation]:
        return {c.name: self.allocation for c in request.claims if self.allocation is not None}

    async def deallocate(self, uid: str) -> None:
        self.given_back.append(uid)


WANTED = request(Nothing(), "p", {})

ANSWERS: list[tuple[dict[str, Answer], str]] = [
    ({}, "driver d gave no answer for claim 'claim-0'"),
    ({"claim-0": Answer(("z",))}, "driver d calls node 'z' viable, which it was not asked about"),
    (
        {"claim-0": Answer((), tuple(f"n{i}" for i in range(33)))},
        "driver d gave 33 alternatives for claim 'claim-0'; at most 32 are allowed",
    ),
]


@pytest.mark.parametrize(("answers", "message"), ANSWERS, ids=[case[1] for case in ANSWERS])
def test_faulty_answers(answers: dict[str, Answer], message: str) -> None:
    with pytest.raises(DriverFault) as caught:
        check_answers("d", WANTED, ["a", "b"], answers)
    assert str(caught.value) == message


ALLOCATIONS = [
    (
        Allocation(tuple(Device("a", f"d{i}") for i in range(33))),
        "33 devices; at most 32 are allowed in a claim",
    ),
    (Allocation((Device("a", "GPU_0"),)), "device name 'GPU_0' is not a lower-case DNS label"),
    (Allocation((Device("A", "d"),)), "pool name 'A' is not made of lower-case DNS subdomains"),
    (Allocation((), {"blob": "x" * 11000}), "data of 11011 bytes; at most 10240 are allowed"),
    (Allocation((), {"blob": "<" * 2000}), "data of 12011 bytes; at most 10240 are allowed"),
]


@pytest.mark.parametrize(("allocation", "message"), ALLOCATIONS, ids=[case[1] for case in ALLOCATIONS])
async def test_a_faulty_allocation_is_given_back_and_told(allocation: Allocation, message: str) -> None:
    driver = Nothing(allocation)
    with pytest.raises(DriverFault) as caught:
        await EmbeddedDriver(driver).allocate(WANTED, "a")
    assert str(caught.value) == f"driver nothing.example.com, claim 'claim-0': {message}"
    assert driver.given_back == ["p-claim-0"]


def test_a_claim_without_allocation_is_a_fault() -> None:
    with pytest.raises(DriverFault) as caught:
        check_allocations("d", WANTED, {}, "a")
    assert str(caught.value) == "driver d allocated nothing for claim 'claim-0'"


def test_good_ones_pass() -> None:
    check_answers("d", WANTED, ["a"], {"claim-0": Answer(("a",), ("z",))})
    check_allocations("d", WANTED, {"claim-0": Allocation((Device("a.example.com/b", "gpu-0"),), {"k": 1})}, "a")


@pytest.mark.parametrize(
    ("error", "fault", "failure"),
    [
        (RuntimeError("read-only"), "RuntimeError: read-only", "read-only"),
        (RuntimeError(), "RuntimeError", "RuntimeError"),
        (KeyError("x"), "KeyError: 'x'", "KeyError: 'x'"),
        (DriverFault("no answer"), "no answer", "no answer"),
    ],
    ids=["a-sentence", "nothing", "a-key", "a-fault"],
)
def test_what_a_driver_raised_reads_as_one_line(error: Exception, fault: str, failure: str) -> None:
    assert (fault_text(error), failure_text(error)) == (fault, failure)


class TellsRoom(Nothing):
    """Tells what is left, as a test wants it."""

    def __init__(self, left: Any) -> None:
        self.left = left

    def room_left(self, request: Any, nodes: Any) -> Any:
        return dict.fromkeys(nodes, self.left)

    def fullest(self, request: Any) -> Any:
        yield "a"
        raise RuntimeError("no order")


@pytest.mark.parametrize("left", [-1, float("nan"), float("inf")])
def test_what_is_left_must_be_a_number_and_not_negative(left: float) -> None:
    driver = EmbeddedDriver(TellsRoom(left))
    with pytest.raises(DriverFault, match=f"has {left} left on node 'a'; it must be a number, 0 or more"):
        driver.score(driver.request(PodReference("team", "p", "u"), []), "a")


def test_an_order_of_nodes_that_fails_is_the_drivers_fault() -> None:
    driver = EmbeddedDriver(TellsRoom(1))
    packs = driver.request(PodReference("team", "p", "u"), [RawClaim("g", "u", "team", "g", "gpus", {}, None)])
    order = iter(driver.fullest(packs))
    assert next(order) == "a"
    with pytest.raises(DriverFault, match="failed in fullest: RuntimeError: no order"):
        next(order)


class Reserves(Nothing):
    """Reserves what a test wants."""

    def __init__(self, reserve: Any, allocation: Allocation | None = None) -> None:
        super().__init__(allocation)
        self.reserve = reserve

    def reserves(self, claim: Any) -> Any:
        return self.reserve


@pytest.mark.parametrize(
    ("reserve", "fault"),
    [
        ("2", "it must be None or a Reserve"),
        (Reserve({"cpu": "-1"}), "no amount may be less than 0"),
        (Reserve({"cpu": "1"}, yields_to=("x",) * 17), "yields_to must be a tuple of at most 16 names of classes"),
        (Reserve({"cpu": "1"}, yields_to=("",)), "yields_to must be a tuple of at most 16 names of classes"),
        (Reserve({"cpu": "1"}, yields_to="night"), "yields_to must be a tuple of at most 16 names of classes"),  # type: ignore[arg-type]
        (Reserve({"cpu": "much"}), "'much' is not a quantity"),
        (Reserve({"pods": "3"}), "it may have 0 to 10000 pods, and amounts of at most 16 other resources"),
        (Reserve(pods=-1), "it may have 0 to 10000 pods, and amounts of at most 16 other resources"),
        (
            Reserve({f"r{i}": "1" for i in range(17)}),
            "it may have 0 to 10000 pods, and amounts of at most 16 other",
        ),
    ],
)
def test_what_is_reserved_can_be_counted(reserve: Any, fault: str) -> None:
    driver = EmbeddedDriver(Reserves(reserve))
    with pytest.raises(DriverFault, match=re.escape(fault)):
        driver.reserves(WANTED.claims[0])


def test_a_claim_of_one_pod_and_a_reserve_of_nothing_reserve_nothing() -> None:
    assert EmbeddedDriver(Reserves(Reserve({"cpu": "0"}))).reserves(WANTED.claims[0]) is None
    generated = replace(WANTED.claims[0], generated=True)
    assert EmbeddedDriver(Reserves(Reserve({"cpu": "1"}))).reserves(generated) is None
    assert EmbeddedDriver(Nothing()).reserves(WANTED.claims[0]) is None


async def test_parley_says_in_the_allocation_what_is_reserved() -> None:
    two = Reserve({"cpu": "2"})
    driver = EmbeddedDriver(Reserves(two, Allocation(reserve=Reserve({"cpu": "9"}))))
    (found,) = (await driver.allocate(WANTED, "a")).values()
    assert found.reserve == two


@pytest.mark.parametrize("nodes", [None, ("a", "b"), NodeLabels({"zone": "a"})])
async def test_what_can_be_used_on_several_nodes_reserves_room_on_none(nodes: AvailableOn) -> None:
    driver = Reserves(Reserve(pods=1), Allocation(available_on=nodes))
    with pytest.raises(DriverFault, match="it reserves room on a node, and can be used on others"):
        await EmbeddedDriver(driver).allocate(WANTED, "a")
    assert driver.given_back == [WANTED.claims[0].uid]


@pytest.mark.parametrize(
    ("on", "fault"),
    [
        (NodeLabels({}), "0 labels in available_on; possible are 1 to 16"),
        (
            NodeLabels({f"label-{index}": "a" for index in range(17)}),
            "17 labels in available_on; possible are 1 to 16",
        ),
        (NodeLabels({"zone": "a b"}), "available_on has zone='a b', which is no value of a label"),
        (NodeLabels({"zone": "a" * 64}), f"available_on has zone={'a' * 64!r}, which is no value of a label"),
        (NodeLabels({"": "a"}), "available_on has '', which is no key of a label"),
        (NodeLabels({"/zone": "a"}), "available_on has '/zone', which is no key of a label"),
        (NodeLabels({"a/b/zone": "a"}), "available_on has 'a/b/zone', which is no key of a label"),
        (NodeLabels({"zone": 1}), "available_on has 'zone'=1; keys and values of labels are texts"),  # type: ignore[dict-item]
        (NodeLabels({1: "a"}), "available_on has 1='a'; keys and values of labels are texts"),  # type: ignore[dict-item]
        (
            NodeLabels("zone"),  # type: ignore[arg-type]
            "available_on has labels 'zone'; they must be a mapping from keys to values",
        ),
        (["a"], "available_on is ['a']; it must be a tuple of nodes, NodeLabels or None"),
    ],
)
async def test_labels_that_the_api_would_refuse_are_a_fault(on: Any, fault: str) -> None:
    driver = Reserves(None, Allocation(available_on=on))
    with pytest.raises(DriverFault) as raised:
        await EmbeddedDriver(driver).allocate(WANTED, "a")
    assert str(raised.value).endswith(fault)


@pytest.mark.parametrize("value", ["a", "", "eu-1.A_b"])
async def test_labels_may_be_what_kubernetes_allows(value: str) -> None:
    on = NodeLabels({"topology.kubernetes.io/zone": value, "rack": "1"})
    (found,) = (await EmbeddedDriver(Reserves(None, Allocation(available_on=on))).allocate(WANTED, "a")).values()
    assert found.available_on == on


async def test_a_driver_that_leaves_data_has_to_name_the_nodes() -> None:
    class Leaves(Reserves):
        leaves_data = True

    driver = Leaves(None, Allocation(available_on=NodeLabels({"zone": "a"})))
    with pytest.raises(DriverFault, match="the driver leaves data on nodes: it has to name them"):
        await EmbeddedDriver(driver).allocate(WANTED, "a")
    assert driver.given_back == [WANTED.claims[0].uid]
