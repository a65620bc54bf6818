"""Pending claims become one typed request for each driver in this process; the rest is for standalone drivers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.unit.control.builders import NAMESPACE, TOKENS, a_class, pending, user

from parley.control.claims.podclaims import PodClaim
from parley.control.decision.demand import Demand, Reserving, demand_of
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.negotiation.answers import Answer
from parley.sdk import Request
from parley.sdk.checks import MAX_CLAIMS, BadParameters
from parley.sdk.embedded import EmbeddedDriver


class Choosy(TokensDriver):
    """Prefers the later nodes of a list."""

    name = "choosy.example.com"

    def score(self, request: Request[Wanted, Pool], nodes: Sequence[str]) -> Mapping[str, float]:
        return {node: place / len(nodes) for place, node in enumerate(nodes, 1)}


DRIVERS = {driver.name: EmbeddedDriver(driver) for driver in (TokensDriver(), Choosy(), DeviceDriver())}
CHOOSY = a_class("choice", Choosy.name, scoreWeight=3)
ELSEWHERE = a_class("attached", "outside.example.com")


def demanded(*claims: PodClaim) -> Demand:
    return demand_of(DRIVERS, user("p"), claims)


def test_each_driver_gets_all_of_its_claims_in_one_typed_request() -> None:
    demand = demanded(pending("a", count=2), pending("b", CHOOSY), pending("c", count=3))
    request = demand.requests[TOKENS]
    assert request.pod == user("p")
    assert [(claim.name, claim.parameters) for claim in request.claims] == [
        ("a", Wanted(count=2)),
        ("c", Wanted(count=3)),
    ]
    assert request.claims[0].class_parameters == Pool(pool=4)
    assert demand.drivers == {"a": TOKENS, "b": Choosy.name, "c": TOKENS}


def test_claims_of_a_driver_that_does_not_run_here_are_left_to_it() -> None:
    there = pending("there", ELSEWHERE, standalone=True, size="10Gi")
    demand = demanded(pending("here"), there)
    assert set(demand.requests) == {TOKENS}
    assert demand.standalone == (there,)
    assert demand.drivers["there"] == "outside.example.com"
    assert demand.units() == {"here": 1}


def test_what_drivers_outside_are_asked_changes_with_claim_parameters_and_uid() -> None:
    there = pending("there", ELSEWHERE, standalone=True, size="10Gi")
    assert demanded(there).standalone_question_key == demanded(there).standalone_question_key
    larger = pending("there", ELSEWHERE, standalone=True, size="20Gi")
    assert there.claim is not None
    meta = there.claim.metadata.model_copy(update={"uid": "uid-of-the-next"})
    anew = replace(there, claim=there.claim.model_copy(update={"metadata": meta}))
    assert (
        demanded(larger).standalone_question_key
        != demanded(there).standalone_question_key
        != demanded(anew).standalone_question_key
    )


def test_demands_are_alike_whatever_the_claims_are_called() -> None:
    assert demanded(pending("a", count=2)).equivalence_key == demanded(pending("b", count=2)).equivalence_key
    assert demanded(pending("a", count=2)).equivalence_key != demanded(pending("a", count=1)).equivalence_key
    assert demanded(pending("a")).equivalence_key != demanded(pending("a", a_class("other"))).equivalence_key


def test_demands_that_reserve_as_much_are_alike_too() -> None:
    """What a claim reserves may follow from more than its parameters."""

    def reserving(uid: str, cpu: int) -> Demand:
        return replace(demanded(pending("a")), reserving=(Reserving(uid, f"team/{uid}", {"cpu": cpu}),))

    assert reserving("a", 2000).equivalence_key == reserving("b", 2000).equivalence_key
    assert reserving("a", 2000).equivalence_key != reserving("a", 1000).equivalence_key
    assert reserving("a", 2000).equivalence_key != demanded(pending("a")).equivalence_key


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (
            pending("c", count=0),
            f"parameters of claim {NAMESPACE}/c: count=0: input should be greater than or equal to 1 "
            "(known parameters: count)",
        ),
        (
            pending("c", a_class("licence", pool=0)),
            "parameters of class licence: pool=0: input should be greater than or equal to 1 "
            "(known parameters: pool, scope)",
        ),
        (
            pending("c", cuont=1),
            f"parameters of claim {NAMESPACE}/c: cuont=1 is not a parameter of this driver "
            "(known parameters: count)",
        ),
    ],
    ids=["of-the-claim", "of-the-class", "a-typo"],
)
def test_bad_parameters_are_named_with_whose_they_are(claim: PodClaim, message: str) -> None:
    with pytest.raises(BadParameters) as raised:
        demanded(claim)
    assert str(raised.value) == message


def test_more_claims_of_a_driver_than_are_judged_together_are_refused() -> None:
    with pytest.raises(BadParameters, match=f"pod {NAMESPACE}/p has {MAX_CLAIMS + 1} claims of driver {TOKENS}"):
        demanded(*(pending(f"c{number}") for number in range(MAX_CLAIMS + 1)))


def test_a_drivers_own_count_is_what_limits_are_told() -> None:
    demand = demanded(pending("a", count=2), pending("b", count=3))
    assert demand.units() == {"a": 2, "b": 3}


def test_on_an_excluded_node_no_claim_is_viable_and_its_driver_is_not_asked() -> None:
    answers = demanded(pending("a")).ask_function({"node-2": "is broken for good"})(["node-1", "node-2"])
    assert answers == {"a": Answer(("node-1",), None, {"node-2": "is broken for good"})}


def test_why_drivers_refuse_a_node_stays_beside_what_is_excluded() -> None:
    answers = demanded(pending("a", count=9)).ask_function({"node-2": "is broken for good"})(["node-1", "node-2"])
    assert answers["a"].reasons == {
        "node-1": "4 of 4 tokens of class licence free, 9 wanted",
        "node-2": "is broken for good",
    }


def test_preferences_are_added_up_by_the_largest_weight_of_each_drivers_classes() -> None:
    lighter = a_class("lighter", Choosy.name, scoreWeight=1)
    there = pending("there", ELSEWHERE, standalone=True)
    demand = demanded(pending("a", CHOOSY), pending("b", lighter), there)
    found = demand.scores(["node-1", "node-2"], {"outside.example.com": {"node-1": 0.5}})
    assert found == {"node-1": 3 * 0.5 + 0.5, "node-2": 3 * 1.0}


@pytest.mark.parametrize(("class_", "any_"), [(None, False), (CHOOSY, True)], ids=["none", "one"])
def test_only_a_driver_that_scores_makes_it_worth_asking_about_more_nodes(class_: None, any_: bool) -> None:
    assert demanded(pending("a"), pending("b", class_)).has_preferences is any_
