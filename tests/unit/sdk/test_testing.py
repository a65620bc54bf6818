"""What the kit for authors of drivers says about a driver that breaks its promises."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from parley.drivers.tokens import TokensDriver
from parley.sdk import Allocation, Answer, Driver, Held, NoParameters, Parameters, Request, SeenPod
from parley.sdk.checks import BadParameters
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


ASKED = request(TokensDriver(), "p", {}, class_parameters={"pool": 2})


@pytest.mark.parametrize("more", [{"where": ("a", 1)}, {"where": None}], ids=["a tuple", "no value"])
async def test_a_driver_restores_from_what_is_recorded_of_its_data(more: dict[str, Any]) -> None:
    """Records are JSON, without fields that have no value."""

    class Typed(TokensDriver):
        """Keeps more in its record than that can hold: what it reads back is another value."""

        async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
            found = await super().allocate(request, node)
            return {name: replace(one, data={**one.data, **more}) for name, one in found.items()}

        def restore(self, held: Held) -> None:
            assert held.data is not None
            if all(held.data.get(k, self) == v for k, v in more.items()):
                super().restore(replace(held, data={k: v for k, v in held.data.items() if k not in more}))

    with pytest.raises(AssertionError, match=r"restore\(\) forgot something"):
        await check_driver(Scenario(Typed, ("a", "b"), (ASKED,)))


async def test_what_can_be_used_everywhere_is_restored_without_a_node() -> None:
    class Placed(TokensDriver):
        def restore(self, held: Held) -> None:
            if held.node is not None:
                super().restore(held)

    with pytest.raises(AssertionError, match=r"restore\(\) forgot something"):
        await check_driver(Scenario(Placed, ("a", "b"), (ASKED,)))


async def test_a_driver_that_sees_pods_sees_those_of_all_requests() -> None:
    class Labelled(TokensDriver):
        sees_pods = True

        def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
            known = request.seen is not None and request.seen.labels.get("team") == "a"
            return super().viable(request, nodes if known else ())

    await check_driver(Scenario(Labelled, ("a", "b"), (replace(ASKED, seen=SeenPod({"team": "a"})),)))


class Old(Parameters):
    """The first version."""

    gigabytes: int = 1

    def newest(self) -> "New":
        return New(gib=self.gigabytes)


class New(Parameters):
    """The second version."""

    gib: int = 1


class Versioned(Torn):
    parameters = New  # type: ignore[assignment]
    class_parameters = New  # type: ignore[assignment]
    parameter_versions = class_parameter_versions = {"torn.example.com/v1": Old, "torn.example.com/v2": New}


@pytest.mark.parametrize(
    "raw",
    [
        {"gigabytes": 3},
        {"apiVersion": "torn.example.com/v1", "gigabytes": 3},
        {"apiVersion": "torn.example.com/v2", "kind": "New", "gib": 3},
    ],
)
def test_parameters_of_a_request_have_the_version_that_users_write(raw: dict[str, Any]) -> None:
    """Without a version they were taken for the newest, as in no cluster; with one they were refused."""
    (claim,) = request(Versioned(), "p", raw, class_parameters=raw).claims
    assert (claim.parameters, claim.class_parameters) == (New(gib=3), New(gib=3))


@pytest.mark.parametrize(
    ("raw", "known"),
    [
        ({"gib": 3}, "of version torn.example.com/v1, as no apiVersion is given: gigabytes"),
        ({"apiVersion": "torn.example.com/v1", "gib": 3}, "of version torn.example.com/v1: gigabytes"),
    ],
)
def test_parameters_that_are_refused_are_told_as_to_users(raw: dict[str, Any], known: str) -> None:
    """With the version that counts: the parameter is one of the driver, in the newest."""
    with pytest.raises(BadParameters) as raised:
        request(Versioned(), "p", raw)
    assert str(raised.value) == (
        "parameters of claim default/p-claim-0: gib=3 is not a parameter of this driver (known parameters "
        f"{known})"
    )
