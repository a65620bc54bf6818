"""What the API server said of mirrors that it refused."""

from tests.unit.control.builders import NAMESPACE, a_claim, read

from parley.api.resources import TEMPLATES
from parley.control.caches.refusals import Refusals

KEY = (NAMESPACE, "c")


def test_a_refusal_is_news_when_it_is_the_first_or_says_something_else() -> None:
    refusals = Refusals()
    news = [refusals.note(a_claim(), words) for words in ("quota", "quota", "webhook")]
    assert news == [True, False, True]
    assert refusals.of("ResourceClaim", KEY) == "webhook"


def test_claim_and_template_of_one_name_are_told_apart() -> None:
    refusals = Refusals()
    spec = {"spec": {"resourceClassName": "licence"}}
    refusals.note(read(TEMPLATES, {"metadata": {"name": "c", "namespace": NAMESPACE}, "spec": spec}), "quota")
    assert refusals.of("ResourceClaim", KEY) == ""
    assert refusals.of("ResourceClaimTemplate", KEY) == "quota"


def test_what_was_made_after_all_is_refused_no_more() -> None:
    refusals = Refusals()
    refusals.note(a_claim(), "quota")
    refusals.clear("ResourceClaim", KEY)
    refusals.clear("ResourceClaim", KEY)
    assert refusals.of("ResourceClaim", KEY) == ""
    assert refusals.note(a_claim(), "quota")
