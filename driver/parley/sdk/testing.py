"""Checks that any driver's tests can call: does it keep the promises of `parley.sdk.Driver`?

    async def test_my_driver_keeps_its_promises() -> None:
        await check_driver(Scenario(make=stocked_driver, nodes=("a", "b"), requests=(one, two)))

Each check starts with a fresh driver from `make` and raises AssertionError with the promise that was broken.
`request` builds requests without a controller.

Whatever `allocate` raises counts as a refusal. If that makes viable() and allocate() disagree, the AssertionError
says what it was, and has it as its cause. The checks call `viable`, never `consider`: an asynchronous driver
without `viable` is checked by `parley driver conformance`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import orjson

from parley.api.models import Allocation as Record
from parley.negotiation.answers import Answers
from parley.sdk.allocation_checks import check_allocations
from parley.sdk.checks import check_answers, check_room, check_uses
from parley.sdk.class_checks import class_fault
from parley.sdk.driver import Driver
from parley.sdk.recorded import allocation_record, held_as_recorded, read_allocation
from parley.sdk.values import Allocation, ClaimRequest, Held, PodReference, Request


@dataclass(frozen=True)
class Scenario:
    """What the checks use. `make` returns a new driver that knows its resources and holds nothing. `nodes`
    are names of nodes that it is asked about. Each of the `requests` fits on at least one of them, and fewer
    than a thousand of its copies fit on all."""

    make: Callable[[], Driver[Any, Any]]
    nodes: Sequence[str]
    requests: Sequence[Request[Any, Any]]


def request(
    driver: Driver[Any, Any],
    pod: str,
    *parameters: Mapping[str, Any],
    class_parameters: Mapping[str, Any] = MappingProxyType({}),
) -> Request[Any, Any]:
    """A pod's request with one claim for each set of parameters, as users write them (camelCase); claims are
    named claim-0, claim-1, ...

    All are of one class, which is called `tested` and has the `class_parameters`. Raises pydantic's
    ValidationError if the driver's models refuse them.
    """
    claims = tuple(
        ClaimRequest(
            name=f"claim-{i}",
            uid=f"{pod}-claim-{i}",
            claim=f"{pod}-claim-{i}",
            class_name="tested",
            parameters=driver.parameters.model_validate(dict(raw)),
            class_parameters=driver.class_parameters.model_validate(dict(class_parameters)),
        )
        for i, raw in enumerate(parameters)
    )
    return Request(PodReference("default", pod, f"uid-of-{pod}"), claims)


async def check_driver(scenario: Scenario) -> None:
    """All checks, for each request of the scenario."""
    if fault := class_fault(type(scenario.make())):
        raise AssertionError(fault)
    for wanted in scenario.requests:
        check_viable_has_no_effect(scenario, wanted)
        await check_viable_means_allocatable(scenario, wanted)
        check_viable_means_room(scenario, wanted)
        check_room_is_told_of_viable_nodes(scenario, wanted)
        await check_refusal_holds_nothing(scenario, wanted)
        await check_deallocation_restores(scenario, wanted)
        await check_restore_equals_allocate(scenario, wanted)


def _answers(driver: Driver[Any, Any], scenario: Scenario, wanted: Request[Any, Any]) -> Answers:
    answers = driver.viable(wanted, scenario.nodes)
    check_answers(driver.name, wanted, scenario.nodes, answers)
    return answers


def _viable(driver: Driver[Any, Any], scenario: Scenario, wanted: Request[Any, Any]) -> list[str]:
    answers = _answers(driver, scenario, wanted)
    return [node for node in scenario.nodes if all(node in answer.viable for answer in answers.values())]


def check_viable_has_no_effect(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """Asking twice gives the same answer."""
    driver = scenario.make()
    assert _answers(driver, scenario, wanted) == _answers(driver, scenario, wanted), "viable() changed something"


async def check_viable_means_allocatable(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """On every viable node, and only there, allocate() succeeds, with allocations that the API accepts."""
    viable = _viable(scenario.make(), scenario, wanted)
    assert viable, "no node of the scenario is viable for the request"
    for node in scenario.nodes:
        refusal = await _refusal(scenario.make(), wanted, node)
        if (refusal is None) != (node in viable):
            said = "allocated it" if refusal is None else f"raised {type(refusal).__name__}: {refusal}"
            text = f"viable() and allocate() disagree about node {node}: allocate() {said}"
            raise AssertionError(text) from refusal


def check_viable_means_room(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """has_room() never denies a node that is viable, nor has_room_anywhere() that there is one: who waits for it
    would not be looked at."""
    driver = scenario.make()
    assert driver.has_room_anywhere(wanted), "viable() and has_room_anywhere() disagree"
    for node in _viable(driver, scenario, wanted):
        assert driver.has_room(wanted, node), f"viable() and has_room() disagree about node {node}"


def check_room_is_told_of_viable_nodes(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """A driver with room_left() tells it of every viable node, and fullest() leaves none of them out, if it
    has an order."""
    driver = scenario.make()
    if type(driver).room_left is Driver.room_left:
        return
    viable = _viable(driver, scenario, wanted)
    left = driver.room_left(wanted, viable)
    check_room(driver.name, left)
    assert left.keys() == set(viable), "room_left() leaves out nodes that it was asked about"
    in_order = set(driver.fullest(wanted))
    assert not in_order or in_order.issuperset(viable), "fullest() leaves out nodes that are viable"


async def _refusal(driver: Driver[Any, Any], wanted: Request[Any, Any], node: str) -> Exception | None:
    try:
        allocations = await driver.allocate(wanted, node)
    except Exception as error:
        return error
    check_allocations(driver.name, wanted, allocations, node, leaves_data=driver.leaves_data)
    return None


async def _exhaust(
    driver: Driver[Any, Any], scenario: Scenario, wanted: Request[Any, Any]
) -> list[tuple[Request[Any, Any], str, Mapping[str, Allocation]]]:
    """Allocate copies of the request until no node is viable any more."""
    done: list[tuple[Request[Any, Any], str, Mapping[str, Allocation]]] = []
    for number in range(1000):
        copy = _copy(wanted, number)
        if not (viable := _viable(driver, scenario, copy)):
            return done
        done.append((copy, viable[0], await driver.allocate(copy, viable[0])))
    raise AssertionError("1000 requests were served and there is still something left; make the scenario smaller")


def _copy(wanted: Request[Any, Any], number: int) -> Request[Any, Any]:
    claims = tuple(replace(c, uid=f"{c.uid}-{number}", claim=f"{c.claim}-{number}") for c in wanted.claims)
    pod = PodReference(wanted.pod.namespace, f"{wanted.pod.name}-{number}", f"{wanted.pod.uid}-{number}")
    return replace(wanted, pod=pod, claims=claims)


async def check_refusal_holds_nothing(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """When nothing is left, allocate() raises on every node, and holds nothing."""
    driver = scenario.make()
    done = await _exhaust(driver, scenario, wanted)
    before = _answers(driver, scenario, wanted)
    for node in scenario.nodes:
        assert await _refusal(driver, wanted, node) is not None, f"allocated on node {node}, which was not viable"
    assert _answers(driver, scenario, wanted) == before, "a refused allocation left something behind"
    assert done


async def check_deallocation_restores(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """After deallocate(), also when called twice, everything is as before."""
    driver = scenario.make()
    before = _answers(driver, scenario, wanted)
    for copy, _, _ in await _exhaust(driver, scenario, wanted):
        for claim in copy.claims:
            await driver.deallocate(claim.uid)
            await driver.deallocate(claim.uid)
    assert _answers(driver, scenario, wanted) == before, "deallocate() did not release everything"


async def check_restore_equals_allocate(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """A new driver that restores what is allocated answers like the one that allocated it.

    It gets what it would after a restart, read from the record: `data` as JSON has it, and no node if the claim
    can be used everywhere.
    """
    driver, successor = scenario.make(), scenario.make()
    for copy, node, allocations in await _exhaust(driver, scenario, wanted):
        for claim in copy.claims:
            allocation = allocations[claim.name]
            held = _recorded(driver.name, claim.uid, allocation, node)
            for _ in range(2):
                successor.restore(held)
            used = driver.uses(held)
            check_uses(driver.name, used)
            assert list(used) == list(successor.uses(held)), "uses() returns something else after restore()"
    assert _answers(driver, scenario, wanted) == _answers(successor, scenario, wanted), (
        "restore() forgot something"
    )


def _recorded(driver: str, uid: str, allocation: Allocation, node: str) -> Held:
    body = orjson.dumps(allocation_record(driver, allocation, node, shareable=False))
    return held_as_recorded(uid, *read_allocation(Record.model_validate_json(body), ()))
