"""How checks end that could not be played to their end."""

from tests.unit.conformance.kit import results

from parley.conformance.checks import CHECKS
from parley.conformance.results import Check, CheckOutcome, NotApplicable
from parley.conformance.stage import Stage


async def removes_its_claim(stage: Stage) -> None:
    """Somebody removes what the kit made."""
    claim = await stage.claim()
    await stage.delete_claim(claim)
    await stage.request_deallocation(claim)


async def takes_what_is_full(stage: Stage) -> None:
    """What is full is allocated."""
    node, _ = await stage.full_node()
    claim = await stage.claim()
    pod = await stage.ask(claim, nodes=[node], selected=node)
    await stage.allocated(claim, pod)


async def does_not_apply(stage: Stage) -> None:
    """There is nothing to see."""
    raise NotApplicable("nothing to see")


def test_what_the_driver_took_away_is_a_failure_and_the_next_check_is_made() -> None:
    checks = (Check("gone", "1. Answer", removes_its_claim), Check("odd", "1. Answer", does_not_apply), CHECKS[0])

    gone, odd, answers = results(checks=checks)

    assert (gone.outcome, gone.about) == (CheckOutcome.FAILED, "namespace conformance-gone")
    assert gone.seen == '404 NotFound: resourceclaims.parley.dev "claim-1" not found'
    assert (odd.outcome, odd.why) == (CheckOutcome.SKIPPED, "nothing to see")
    assert answers.outcome is CheckOutcome.PASSED


def test_where_nothing_is_allocated_the_failure_is_shown_that_the_driver_reported() -> None:
    (full,) = results(checks=(Check("full", "2. Allocate", takes_what_is_full),))

    assert full.seen == (
        "finalizers=[], status={}; PodScheduling conformance-full/pod-10: "
        "failure={'nodeName': 'node-2', 'message': 'no free seat', 'permanent': False}"
    )


def test_after_a_basic_check_that_failed_no_other_is_made() -> None:
    basic = Check("gone", "1. Answer", removes_its_claim, basic=True)

    _, answers = results(checks=(basic, CHECKS[0]))

    assert (answers.outcome, answers.why) == (CheckOutcome.SKIPPED, "needs gone, which failed")
