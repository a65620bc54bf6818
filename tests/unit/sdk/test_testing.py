"""What the kit for authors of drivers says about a driver that breaks its promises."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from parley.sdk import Allocation, Answer, Driver, NoParameters, Request
from parley.sdk.testing import Scenario, check_driver, check_viable_means_allocatable, request


class Torn(Driver[NoParameters, NoParameters]):
    """Says that node a is viable; allocates only on node b."""

    name = "torn.example.com"
    parameters = NoParameters
    class_parameters = NoParameters

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        return {claim.name: Answer(("a",)) for claim in request.claims}

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        return {claim.name: Allocation(data={"slot": {"b": 0}[node]}) for claim in request.claims}

    async def deallocate(self, uid: str) -> None:
        """Nothing is held."""


async def test_it_tells_what_allocate_raised_on_a_viable_node() -> None:
    with pytest.raises(AssertionError) as raised:
        await check_viable_means_allocatable(Scenario(Torn, ("a",), ()), request(Torn(), "p", {}))

    assert str(raised.value) == "viable() and allocate() disagree about node a: allocate() raised KeyError: 'a'"
    assert isinstance(raised.value.__cause__, KeyError)


async def test_it_tells_of_what_was_allocated_on_a_node_that_is_not_viable() -> None:
    class OnlyThere(Torn):
        async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
            return await super().allocate(request, "b")

    with pytest.raises(AssertionError) as raised:
        await check_viable_means_allocatable(Scenario(OnlyThere, ("a", "b"), ()), request(Torn(), "p", {}))

    assert str(raised.value) == "viable() and allocate() disagree about node b: allocate() allocated it"


async def test_it_tells_which_methods_must_not_be_async() -> None:
    class Restoring(Torn):
        async def restore(self, held: Any) -> None:  # type: ignore[override]
            """Never runs."""

    with pytest.raises(AssertionError, match="restore must not be async: Parley calls it without await"):
        await check_driver(Scenario(Restoring, ("a",), ()))
