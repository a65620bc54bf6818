"""The tokens driver: its promises, its words, and that a pool never gives more than it has."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.api.resources import Resource
from parley.drivers import tokens
from parley.drivers.tokens import NotEnoughTokens, Pool, TokensDriver, Wanted
from parley.sdk import Allocation, Answer, Capacity, ClaimRequest, ClassOnNodes, Held, PodReference, Request
from parley.sdk.checks import BadParameters, parse_parameters
from parley.sdk.testing import Scenario, check_driver
from parley.simulate.manifests import read

ROOT = Path(__file__).parents[3]
NODES = ("a", "b", "c")
LICENCES = {"licences": Pool(pool=10)}
SLOTS = {"slots": Pool(pool=3, scope="Node")}
BOTH = {**LICENCES, **SLOTS}
SHRUNK = {"licences": Pool(pool=4)}


def asked(pod: str, classes: Mapping[str, Pool], *wanted: tuple[str, int]) -> Request[Wanted, Pool]:
    """A pod's request: the class and the count of each claim."""
    claims = tuple(
        ClaimRequest(f"claim-{i}", f"{pod}-{i}", f"{pod}-{i}", name, Wanted(count=count), classes[name])
        for i, (name, count) in enumerate(wanted)
    )
    return Request(PodReference("default", pod, f"uid-of-{pod}"), claims)


def answer(driver: TokensDriver, request: Request[Wanted, Pool], *nodes: str) -> Answer:
    """What the driver says about the first claim."""
    return driver.viable(request, nodes or NODES)["claim-0"]


@pytest.mark.parametrize(
    "wanted",
    [
        [("licences", 1)],
        [("licences", 10)],
        [("slots", 2)],
        [("licences", 3), ("licences", 4)],
        [("slots", 1), ("licences", 2), ("slots", 2)],
    ],
    ids=str,
)
async def test_it_keeps_the_promises_of_a_driver(wanted: list[tuple[str, int]]) -> None:
    await check_driver(Scenario(TokensDriver, NODES, (asked("p", BOTH, *wanted),)))


async def test_tokens_of_the_cluster_are_free_everywhere_or_nowhere() -> None:
    driver = TokensDriver()
    await driver.allocate(asked("p", LICENCES, ("licences", 7)), "a")

    assert answer(driver, asked("q", LICENCES, ("licences", 3))) == Answer(NODES)
    words = "3 of 10 tokens of class licences free, 4 wanted"
    refused = answer(driver, asked("q", LICENCES, ("licences", 4)))
    assert refused == Answer((), (), dict.fromkeys(NODES, words))


async def test_tokens_of_a_node_are_counted_on_each_node() -> None:
    driver = TokensDriver()
    await driver.allocate(asked("p", SLOTS, ("slots", 2)), "b")

    words = "1 of 3 tokens of class slots free, 2 wanted"
    assert answer(driver, asked("q", SLOTS, ("slots", 2))) == Answer(("a", "c"), None, {"b": words})
    assert answer(driver, asked("q", SLOTS, ("slots", 2)), "b") == Answer((), None, {"b": words})


def test_more_tokens_than_the_pool_has_are_nowhere_else_either() -> None:
    words = "3 of 3 tokens of class slots free, 4 wanted"
    assert answer(TokensDriver(), asked("p", SLOTS, ("slots", 4)), "a") == Answer((), (), {"a": words})


def test_claims_of_the_same_pool_add_up() -> None:
    both = asked("p", LICENCES, ("licences", 5), ("licences", 6))
    words = "10 of 10 tokens of class licences free, 11 wanted"
    refused = Answer((), (), {"a": words})
    assert TokensDriver().viable(both, ["a"]) == {"claim-0": refused, "claim-1": refused}


async def test_pools_are_told_apart_by_class() -> None:
    driver = TokensDriver()
    classes = {"one": Pool(pool=1), "other": Pool(pool=1)}
    await driver.allocate(asked("p", classes, ("one", 1)), "a")
    assert answer(driver, asked("q", classes, ("other", 1))).viable == NODES
    assert answer(driver, asked("q", classes, ("one", 1))).viable == ()


async def test_the_handle_and_where_it_can_be_used() -> None:
    driver = TokensDriver()
    given = await driver.allocate(asked("p", BOTH, ("licences", 2), ("slots", 1)), "a")
    assert given == {
        "claim-0": Allocation(data={"pool": "licences", "node": "a", "count": 2}, available_on=None),
        "claim-1": Allocation(data={"pool": "slots", "node": "a", "count": 1}),
    }


async def test_the_slower_of_two_pods_is_told_what_is_left() -> None:
    driver = TokensDriver()
    await driver.allocate(asked("p", SLOTS, ("slots", 3)), "a")
    with pytest.raises(NotEnoughTokens) as caught:
        await driver.allocate(asked("q", SLOTS, ("slots", 1)), "a")
    assert str(caught.value) == "node a: 0 of 3 tokens of class slots free, 1 wanted"


async def test_a_pool_made_smaller_than_what_is_held_has_nothing_free() -> None:
    driver = TokensDriver()
    wide = asked("p", LICENCES, ("licences", 9))
    await driver.allocate(wide, "a")

    words = "0 of 4 tokens of class licences free, 1 wanted"
    assert answer(driver, asked("q", SHRUNK, ("licences", 1)), "a").reasons == {"a": words}
    await driver.deallocate(wide.claims[0].uid)
    assert answer(driver, asked("q", SHRUNK, ("licences", 4)), "a").viable == ("a",)


async def test_a_pool_whose_scope_changed_counts_what_was_allocated_before() -> None:
    driver = TokensDriver()
    await driver.allocate(asked("p", {"one": Pool(pool=2)}, ("one", 2)), "a")
    by_node = {"one": Pool(pool=2, scope="Node")}
    assert answer(driver, asked("q", by_node, ("one", 1))).viable == ("b", "c")


def test_restoring_twice_counts_once_and_a_foreign_allocation_not_at_all() -> None:
    driver = TokensDriver()
    held = Held("u", None, (), {"pool": "licences", "node": "a", "count": 6})
    driver.restore(held)
    driver.restore(held)
    driver.restore(Held("foreign", None, (), None))
    assert answer(driver, asked("p", LICENCES, ("licences", 4))).viable == NODES
    assert answer(driver, asked("p", LICENCES, ("licences", 5))).viable == ()
    driver.forget("u")
    driver.forget("u")
    assert answer(driver, asked("p", LICENCES, ("licences", 10))).viable == NODES


def test_limits_are_in_tokens() -> None:
    (claim,) = asked("p", LICENCES, ("licences", 4)).claims
    assert TokensDriver().units(claim) == 4


@pytest.mark.parametrize(
    ("schema", "raw", "message"),
    [
        (Wanted, {"count": 0}, "count=0: input should be greater than or equal to 1 (known parameters: count)"),
        (
            Wanted,
            {"count": 10**10},
            "count=10000000000: input should be less than or equal to 1000000000 (known parameters: count)",
        ),
        (Wanted, {"tokens": 2}, "tokens=2 is not a parameter of this driver (known parameters: count)"),
        (Pool, {}, "pool is missing (known parameters: pool, scope)"),
        (Pool, {"pool": "9"}, "pool='9': input should be a valid integer (known parameters: pool, scope)"),
        (
            Pool,
            {"pool": 1, "scope": "Rack"},
            "scope='Rack': input should be 'Cluster' or 'Node' (known parameters: pool, scope)",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_parameters_name_field_and_value(schema: Any, raw: dict[str, Any], message: str) -> None:
    with pytest.raises(BadParameters) as caught:
        parse_parameters(schema, raw, "claim team/tokens")
    assert str(caught.value) == f"parameters of claim team/tokens: {message}"


steps = st.tuples(
    st.lists(st.tuples(st.sampled_from(["licences", "slots"]), st.integers(1, 4)), min_size=1, max_size=3),
    st.sampled_from(NODES),
    st.booleans(),
)


@given(st.lists(steps, max_size=15))
@settings(max_examples=150, deadline=None)
async def test_no_pool_ever_gives_more_than_it_has(
    course: list[tuple[list[tuple[str, int]], str, bool]],
) -> None:
    driver, held = TokensDriver(), dict[str, Held]()
    for number, (wanted, node, give_back) in enumerate(course):
        request = asked(f"p{number}", BOTH, *wanted)
        if answer(driver, request, node).viable:
            given = await driver.allocate(request, node)
            held |= {c.uid: Held(c.uid, node, (), given[c.name].data) for c in request.claims}
        if give_back and held:
            await driver.deallocate(held.popitem()[0])
        assert_within_the_pools(held)
        assert_known_to_a_successor(driver, held)


def assert_within_the_pools(held: Mapping[str, Held]) -> None:
    in_all, on_node = Counter[str](), Counter[str]()
    for claim in held.values():
        data = claim.data or {}
        in_all["licences"] += data["count"] if data["pool"] == "licences" else 0
        on_node[data["node"]] += data["count"] if data["pool"] == "slots" else 0
    assert in_all["licences"] <= LICENCES["licences"].pool
    assert max(on_node.values(), default=0) <= SLOTS["slots"].pool


def assert_known_to_a_successor(driver: TokensDriver, held: Mapping[str, Held]) -> None:
    successor = TokensDriver()
    for claim in held.values():
        successor.restore(replace(claim, node=None))
    for name in BOTH:
        for count in (1, 2, 3):
            request = asked("next", BOTH, (name, count))
            assert answer(successor, request) == answer(driver, request)


@pytest.mark.parametrize("example", sorted((ROOT / "examples/tokens").iterdir()), ids=lambda path: path.name)
def test_the_examples_are_valid_and_need_no_node_part(example: Path) -> None:
    manifests = read([example])
    (class_,) = (m.body for m in manifests if m.resource.kind == "ResourceClass")
    assert class_["driverName"] == TokensDriver.name
    assert class_["nodePart"] == "None"
    parse_parameters(Pool, class_["parameters"], example.name)


def test_what_the_tutorial_quotes_is_in_the_code() -> None:
    quotes = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tokens-driver.md").read_text(), flags=re.DOTALL)
    code = Path(tokens.__file__).read_text() + Path(__file__).read_text()
    assert len(quotes) == 6
    assert [quote for quote in quotes if quote not in code] == []


def test_the_kind_that_the_tutorial_writes_is_one() -> None:
    (shown,) = re.findall(r"`(Resource\(.*?\))`", (ROOT / "docs/tokens-driver.md").read_text())

    kind: Resource[Any] = eval(shown)

    assert kind.path("team", "small") == "/apis/licences.example.com/v1/namespaces/team/sizes/small"


async def test_what_a_pool_has_and_what_of_it_is_free() -> None:
    driver = TokensDriver()
    await driver.allocate(asked("p", BOTH, ("licences", 7), ("slots", 2)), "a")
    assert driver.capacity(ClassOnNodes("licences", LICENCES["licences"], NODES)) == Capacity(10, 3)
    assert driver.capacity(ClassOnNodes("slots", SLOTS["slots"], NODES)) == Capacity(9, 7)
    assert driver.capacity(ClassOnNodes("slots", SLOTS["slots"], ("b",))) == Capacity(3, 3)
    assert driver.capacity(ClassOnNodes("licences", SHRUNK["licences"], NODES)) == Capacity(4, 0), "never below"
