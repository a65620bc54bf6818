"""Checks for a driver's own tests: does the driver fulfil the contract of `parley.sdk.Driver`?

    async def test_my_driver_keeps_its_promises() -> None:
        await check_driver(Scenario(make=stocked_driver, nodes=("a", "b"), requests=(one, two)))

Each check starts with a new driver from `make` and raises AssertionError with the rule that was broken.
`request` builds requests without a controller.

Any exception from `allocate` counts as a refusal. If that makes viable() and allocate() disagree, the
AssertionError names the exception and has it as its cause. The checks call `viable`, never `consider`: an
asynchronous driver without `viable` is checked by `parley driver conformance`. They can't detect a method that
blocks the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import orjson

from parley.api.models import Allocation as Record
from parley.negotiation.answers import Answers
from parley.negotiation.stranded import Cause
from parley.sdk.allocation_checks import as_recorded, check_allocations
from parley.sdk.checks import (
    MAX_CLAIMS,
    DriverFault,
    ParameterModels,
    check_answers,
    check_capacity,
    check_room,
    check_uses,
    fault_text,
    shown,
)
from parley.sdk.class_checks import class_fault
from parley.sdk.driver import Driver
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.merging import merge_requests
from parley.sdk.recorded import allocation_record, held_as_recorded, read_allocation
from parley.sdk.values import Allocation, ClaimRequest, ClassOnNodes, Held, PodReference, Request

UNKNOWN_NODE = "unknown-node"
_UNKNOWN_CLAIM = "uid-of-unallocated-claim"
_TIMES = 4
"""This many times the claims that fit one after the other can't fit together, however well they are packed."""

Done = tuple[Request[Any, Any], str, Mapping[str, Allocation]]
"""A request, the node where it was allocated, and its allocations."""


@dataclass(frozen=True)
class Scenario:
    """The input of the checks. `make` returns a new driver that knows its resources and has no allocations.
    `nodes` are the names of the nodes to ask about. Each of the `requests` fits on at least one of them, and fewer
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

    All claims are of one class, named `tested`, with the `class_parameters`. Parameters have the version that
    their `apiVersion` names, the oldest without one, if the driver has versions. Raises BadParameters, with the
    message that users read, if the driver's models refuse the parameters.
    """
    of_claims = ParameterModels(driver.parameters, driver.parameter_versions)
    of_classes = ParameterModels(driver.class_parameters, driver.class_parameter_versions)
    claims = tuple(
        ClaimRequest(
            name=f"claim-{i}",
            uid=f"{pod}-claim-{i}",
            claim=f"{pod}-claim-{i}",
            class_name="tested",
            parameters=of_claims.parse(raw, f"claim default/{pod}-claim-{i}"),
            class_parameters=of_classes.parse(class_parameters, "class tested"),
        )
        for i, raw in enumerate(parameters)
    )
    return Request(PodReference("default", pod, f"uid-of-{pod}"), claims)


async def check_driver(scenario: Scenario) -> None:
    """Runs all checks, for each request of the scenario."""
    kind = type(scenario.make())
    if fault := class_fault(kind):
        raise AssertionError(fault)
    if kind.viable is Driver.viable:
        raise AssertionError(
            "viable is missing: check a driver with `consider` alone by parley driver conformance"
        )
    for wanted in scenario.requests:
        check_viable_has_no_effect(scenario, wanted)
        check_unknown_node_is_answered(scenario, wanted)
        await check_viable_means_allocatable(scenario, wanted)
        check_viable_means_room(scenario, wanted)
        check_room_is_told_of_viable_nodes(scenario, wanted)
        check_what_is_counted(scenario, wanted)
        await check_claims_are_judged_together(scenario, wanted)
        await check_deallocation_restores(scenario, wanted)
        await check_refusal_holds_nothing(scenario, wanted)
        await check_held_before_waiting(scenario, wanted)
        await check_local_release(scenario, wanted)
        await check_restore_equals_allocate(scenario, wanted)
        await check_forget_ends_what_others_hold(scenario, wanted)


@contextmanager
def _contract() -> Iterator[None]:
    try:
        yield
    except DriverFault as fault:
        raise AssertionError(str(fault)) from fault


@contextmanager
def _without_exception(call: str, when: str) -> Iterator[None]:
    """Turns an exception of the driver into an AssertionError that says in which situation it was called."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{call}() raised {fault_text(error)}{when}") from error


def _answers(driver: Driver[Any, Any], scenario: Scenario, wanted: Request[Any, Any]) -> Answers:
    answers = driver.viable(wanted, scenario.nodes)
    with _contract():
        check_answers(driver.name, wanted, scenario.nodes, answers)
    return answers


def _viable(driver: Driver[Any, Any], scenario: Scenario, wanted: Request[Any, Any]) -> list[str]:
    answers = _answers(driver, scenario, wanted)
    return [node for node in scenario.nodes if all(node in answer.viable for answer in answers.values())]


def check_viable_has_no_effect(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """Asking twice gives the same answer."""
    driver = scenario.make()
    assert _answers(driver, scenario, wanted) == _answers(driver, scenario, wanted), "viable() changed something"


def check_unknown_node_is_answered(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """viable() answers about nodes that the driver does not know: nodes are added at any time."""
    with _without_exception("viable", ", asked about a node that it does not know"):
        _answers(scenario.make(), replace(scenario, nodes=(*scenario.nodes, UNKNOWN_NODE)), wanted)


async def check_viable_means_allocatable(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """On every viable node, and only there, allocate() succeeds, with allocations that the API accepts."""
    viable = _viable(scenario.make(), scenario, wanted)
    assert viable, "no node of the scenario is viable for the request"
    for node in scenario.nodes:
        refusal = await _refusal(scenario.make(), wanted, node)
        if (refusal is None) != (node in viable):
            raise _disagreement(node, refusal)


def _disagreement(node: str, refusal: Exception | None) -> AssertionError:
    said = "allocated it" if refusal is None else f"raised {type(refusal).__name__}: {refusal}"
    error = AssertionError(f"viable() and allocate() disagree about node {node}: allocate() {said}")
    error.__cause__ = refusal
    return error


def check_viable_means_room(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """has_room() is true for viable nodes, and has_room_anywhere() if there is one: otherwise Parley would not
    wake pods that could succeed."""
    driver = scenario.make()
    assert driver.has_room_anywhere(wanted), "viable() and has_room_anywhere() disagree"
    for node in _viable(driver, scenario, wanted):
        assert driver.has_room(wanted, node), f"viable() and has_room() disagree about node {node}"


def check_room_is_told_of_viable_nodes(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """room_left() has every viable node that it was asked about, and so has fullest(), if the driver has these."""
    driver = scenario.make()
    if type(driver).room_left is Driver.room_left:
        return
    viable = _viable(driver, scenario, wanted)
    left = driver.room_left(wanted, viable)
    with _contract():
        check_room(driver.name, left)
    assert left.keys() == set(viable), "room_left() leaves out nodes that it was asked about"
    in_order = set(driver.fullest(wanted))
    assert not in_order or in_order.issuperset(viable), "fullest() leaves out nodes that are viable"


def check_what_is_counted(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """The driver's other methods return valid values: scores, units, reserves, capacity, the treatment of stranded
    claims. alike() returns equal keys for the same request."""
    driver = scenario.make()
    called, viable = EmbeddedDriver(driver), _viable(driver, scenario, wanted)
    with _contract():
        called.score(wanted, viable)
        assert called.alike(wanted) == called.alike(wanted), "alike() differs for the same request"
        if called.supports_preemption:
            called.viable_without(wanted, viable[0], ())
        for claim in wanted.claims:
            called.units(claim)
            named = replace(claim, generated=False)
            called.reserves(named)
            for cause in Cause if called.decides_stranded else ():
                called.stranded(named, viable[0], cause)
    _check_capacity(driver, scenario, wanted)


def _check_capacity(driver: Driver[Any, Any], scenario: Scenario, wanted: Request[Any, Any]) -> None:
    with _contract():
        for claim in wanted.claims:
            of = ClassOnNodes(claim.class_name, claim.class_parameters, scenario.nodes)
            check_capacity(driver.name, driver.capacity(of))


async def _refusal(driver: Driver[Any, Any], wanted: Request[Any, Any], node: str) -> Exception | None:
    call: object = driver.allocate(wanted, node)
    try:
        allocations = await _awaitable("allocate", call)
    except AssertionError:
        raise
    except Exception as error:
        return error
    with _contract():
        check_allocations(driver.name, wanted, allocations, node, leaves_data=driver.leaves_data)
    return None


def _awaitable(call: str, result: object) -> Awaitable[Any]:
    assert isinstance(result, Awaitable), (
        f"{call}() returned {shown(result)}, which cannot be awaited: {call} must be async def"
    )
    return result


async def _deallocate(driver: Driver[Any, Any], *of: Request[Any, Any]) -> None:
    for wanted in of:
        for claim in wanted.claims:
            await _awaitable("deallocate", driver.deallocate(claim.uid))


async def _exhaust(driver: Driver[Any, Any], scenario: Scenario, wanted: Request[Any, Any]) -> list[Done]:
    """Allocates copies of the request until no node is viable any more."""
    done: list[Done] = []
    for number in range(1000):
        copy = _copy(wanted, number)
        if not (viable := _viable(driver, scenario, copy)):
            return done
        try:
            allocations = await _awaitable("allocate", driver.allocate(copy, viable[0]))
        except AssertionError:
            raise
        except Exception as error:
            raise _disagreement(viable[0], error) from error
        done.append((copy, viable[0], allocations))
    raise AssertionError("1000 requests were served and there is still something left; make the scenario smaller")


def _copy(wanted: Request[Any, Any], number: int) -> Request[Any, Any]:
    claims = tuple(replace(c, uid=f"{c.uid}-{number}", claim=f"{c.claim}-{number}") for c in wanted.claims)
    pod = PodReference(wanted.pod.namespace, f"{wanted.pod.name}-{number}", f"{wanted.pod.uid}-{number}")
    return replace(wanted, pod=pod, claims=claims)


async def check_claims_are_judged_together(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """No node is viable for a pod with `_TIMES` as many claims as fit there one after the other."""
    for node in scenario.nodes:
        alone = replace(scenario, nodes=(node,))
        fit = len(await _exhaust(scenario.make(), alone, wanted))
        many = [_copy(wanted, number) for number in range(_TIMES * (fit + 1))]
        if fit and len(many) * len(wanted.claims) <= MAX_CLAIMS:
            asked = merge_requests(many[0], many[1:])
            assert not _viable(scenario.make(), alone, asked), (
                f"node {node} is viable for a pod with {len(asked.claims)} claims, and has enough for"
                f" {fit * len(wanted.claims)}: judge all claims of a request together"
            )


async def check_refusal_holds_nothing(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """Where not enough is left, allocate() raises, and holds nothing, not even for some of the claims. capacity()
    is valid, too, when nothing is left."""
    driver = scenario.make()
    parts = [wanted, *(replace(wanted, claims=(claim,)) for claim in wanted.claims)]
    empty = [_answers(driver, scenario, part) for part in parts]
    done = await _exhaust(driver, scenario, wanted)
    _check_capacity(driver, scenario, wanted)
    if len(wanted.claims) > 1:  # then there is enough for a part of them
        await _awaitable("deallocate", driver.deallocate(done[-1][0].claims[0].uid))
    before, viable = [_answers(driver, scenario, part) for part in parts], _viable(driver, scenario, wanted)
    for node in (node for node in scenario.nodes if node not in viable):
        assert await _refusal(driver, wanted, node) is not None, f"allocated on node {node}, which was not viable"
    refused = [_answers(driver, scenario, part) for part in parts]
    await _deallocate(driver, *(copy for copy, _, _ in done))
    left = [_answers(driver, scenario, part) for part in parts]
    assert (refused, left) == (before, empty), "a refused allocation left something behind"


async def check_held_before_waiting(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """Two concurrent calls of allocate() do not both succeed where there is enough for one."""
    driver = scenario.make()
    last, node, _ = (await _exhaust(driver, scenario, wanted))[-1]
    await _deallocate(driver, last)
    pods = (_copy(wanted, 1001), _copy(wanted, 1002))
    refusals = await asyncio.gather(*(_refusal(driver, pod, node) for pod in pods))
    assert any(refusals), (
        f"allocate() gave two pods at once what is enough for one on node {node}: check again, and hold what you"
        " allocate, before the first await"
    )


async def check_deallocation_restores(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """deallocate() restores the answers of before, also when called twice, and does nothing for a claim that holds
    nothing."""
    driver = scenario.make()
    before = _answers(driver, scenario, wanted)
    with _without_exception("deallocate", " for a claim that holds nothing"):
        await _awaitable("deallocate", driver.deallocate(_UNKNOWN_CLAIM))
    for copy, _, _ in await _exhaust(driver, scenario, wanted):
        await _deallocate(driver, copy, copy)
    assert _answers(driver, scenario, wanted) == before, "deallocate() did not release everything"


async def check_local_release(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """Releasing a local allocation (is_local(), node_local) makes no other node viable: Parley would not ask about
    that node again."""
    driver = scenario.make()
    for copy, node, allocations in await _exhaust(driver, scenario, wanted):
        held = [_recorded(driver.name, claim.uid, allocations[claim.name], node) for claim in copy.claims]
        local, before = all(map(driver.is_local, held)), _viable(driver, scenario, wanted)
        await _deallocate(driver, copy)
        others = [n for n in _viable(driver, scenario, wanted) if n != node and n not in before]
        assert not local or not others, (
            f"releasing what was allocated on node {node} made node {', '.join(others)} viable: it is not local to"
            " its node, as is_local() or node_local says"
        )


async def check_restore_equals_allocate(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """A new driver that restores the allocations answers like the one that made them, and can release them.

    It gets the same values as after a restart, read from the record: `data` decoded from JSON, without fields that
    are None, and no node if the claim can be used on every node.
    """
    driver, successor = scenario.make(), scenario.make()
    empty = _answers(successor, scenario, wanted)
    done = await _exhaust(driver, scenario, wanted)
    for copy, node, allocations in done:
        recorded = as_recorded(copy, allocations)
        for claim in copy.claims:
            held = _recorded(driver.name, claim.uid, recorded[claim.name], node)
            with _without_exception("restore", ", called twice with what allocate() returned"):
                for _ in range(2):
                    successor.restore(held)
            used = driver.uses(held)
            with _contract():
                check_uses(driver.name, used)
            assert list(used) == list(successor.uses(held)), "uses() returns something else after restore()"
    assert _answers(driver, scenario, wanted) == _answers(successor, scenario, wanted), (
        "restore() forgot something"
    )
    await _deallocate(successor, *(copy for copy, _, _ in done))
    assert _answers(successor, scenario, wanted) == empty, (
        "deallocate() did not release everything that restore() counted, each claim twice"
    )


async def check_forget_ends_what_others_hold(scenario: Scenario, wanted: Request[Any, Any]) -> None:
    """After forget(), also when called twice, devices that ordinary DRA held and restore() counted are free."""
    driver, other = scenario.make(), scenario.make()
    before = _answers(driver, scenario, wanted)
    for copy, _, allocations in await _exhaust(other, scenario, wanted):
        for claim in copy.claims:
            if devices := allocations[claim.name].devices:
                with _without_exception("restore", " for devices that ordinary DRA allocated: data is None"):
                    driver.restore(Held(claim.uid, None, devices, None))
            with _without_exception("forget", ", called twice"):
                driver.forget(claim.uid)
                driver.forget(claim.uid)
    assert _answers(driver, scenario, wanted) == before, "forget() left something of what restore() counted"


def _recorded(driver: str, uid: str, allocation: Allocation, node: str) -> Held:
    body = orjson.dumps(allocation_record(driver, allocation, node, shareable=False))
    return held_as_recorded(uid, *read_allocation(Record.model_validate_json(body), ()))
