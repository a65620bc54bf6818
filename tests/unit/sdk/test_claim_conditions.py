"""What a claim's conditions say follows from the rest of its status, and is written with it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.api.conditions import ConditionUpdate
from parley.api.meta import Condition
from parley.api.models import ResourceClaim
from parley.sdk.claim_conditions import with_conditions
from parley.sdk.recorded import NOTHING_ALLOCATED

BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
DRIVER = "disks.example.com"
NAMED = {"key": "metadata.name", "operator": "In", "values": ["a"]}
ON_A: dict[str, Any] = {"availableOnNodes": {"nodeSelectorTerms": [{"matchFields": [NAMED]}]}}
ALLOCATED: dict[str, Any] = {"driverName": DRIVER, "allocation": ON_A}
ACCEPTED = ConditionUpdate("Accepted", True, "Accepted", "all is known")
RELEASING = ConditionUpdate("Releasing", True, "ForcedDeletion", "node a has yet to confirm")

Patch = dict[str, Any]


def a_claim(status: Patch | None = None, *updates: ConditionUpdate, **metadata: Any) -> ResourceClaim:
    mode = metadata.pop("mode", "WaitForFirstConsumer")
    body = {
        "metadata": {"name": "c", "generation": 3, **metadata},
        "spec": {"resourceClassName": "disk", "allocationMode": mode},
        "status": status or {},
    }
    claim = ResourceClaim.model_validate(body)
    return after(claim, with_conditions(claim, status or {}, BEFORE, *updates)) if updates else claim


def after(claim: ResourceClaim, patch: Patch) -> ResourceClaim:
    """The claim with the patch applied to its status, as a merge patch is."""
    body = claim.model_dump(mode="json", by_alias=True, exclude_unset=True)
    merged = {**body.get("status", {}), **patch}
    body["status"] = {name: value for name, value in merged.items() if value is not None}
    return ResourceClaim.model_validate(body)


def told(claim: ResourceClaim, of_type: str) -> tuple[str, str, str]:
    (found,) = [c for c in claim.status.conditions if c.type == of_type]
    return found.status, found.reason, found.message


def test_a_claim_that_nobody_uses_yet_is_to_be_allocated_for_the_first_that_does() -> None:
    claim = a_claim(None, ACCEPTED)
    assert told(claim, "Allocated") == (
        "False",
        "WaitForFirstConsumer",
        "to be allocated for the first pod that uses the claim",
    )
    assert told(claim, "Ready") == told(claim, "Allocated")


def test_one_that_is_allocated_without_a_pod_is_pending_until_there_is_a_reason() -> None:
    claim = a_claim(None, ACCEPTED, mode="Immediate")
    assert told(claim, "Allocated")[:2] == ("False", "ClaimPending")
    why = ConditionUpdate("Allocated", False, "NothingViable", "node a: has no disks")
    claim = after(claim, with_conditions(claim, {}, NOW, why))
    assert told(claim, "Allocated") == told(claim, "Ready") == ("False", "NothingViable", "node a: has no disks")
    claim = after(claim, with_conditions(claim, {}, NOW, ACCEPTED))
    assert told(claim, "Allocated")[1] == "NothingViable", "why is not forgotten"
    claim = after(claim, with_conditions(claim, ALLOCATED, NOW, why))
    assert told(claim, "Allocated") == ("True", "Allocated", "allocated on node a"), "what is recorded counts"


def test_an_allocation_makes_an_accepted_claim_ready_in_the_same_write() -> None:
    claim = a_claim(None, ACCEPTED)
    claim = after(claim, with_conditions(claim, ALLOCATED, NOW))
    assert told(claim, "Allocated") == ("True", "Allocated", "allocated on node a")
    assert told(claim, "Ready") == ("True", "Ready", "accepted and allocated: a pod may use the claim")
    assert {c.type: c.last_transition_time for c in claim.status.conditions} == {
        "Accepted": BEFORE,
        "Allocated": NOW,
        "Ready": NOW,
    }
    assert {c.observed_generation for c in claim.status.conditions} == {3}


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        ({}, "allocated and usable on every node"),
        (
            {"availableOnNodes": {"nodeSelectorTerms": [{"matchExpressions": [{**NAMED, "key": "zone"}]}]}},
            "allocated on nodes with zone=a",
        ),
        (
            {"availableOnNodes": {"nodeSelectorTerms": [{"matchFields": [{**NAMED, "operator": "NotIn"}]}]}},
            "allocated on the nodes that status.allocation.availableOnNodes selects",
        ),
    ],
)
def test_the_message_says_where(allocation: Patch, message: str) -> None:
    claim = a_claim(None, ACCEPTED)
    allocated = {"driverName": DRIVER, "allocation": {"handles": [], **allocation}}
    assert told(after(claim, with_conditions(claim, allocated, NOW)), "Allocated")[2] == message


@pytest.mark.parametrize(
    ("patch", "updates", "metadata", "reason"),
    [
        ({}, (), {"deletionTimestamp": NOW, "finalizers": ["parley.dev/in-use"]}, "ClaimBeingDeleted"),
        ({"deallocationRequested": True}, (), {}, "Deallocating"),
        ({}, (RELEASING,), {}, "Releasing"),
        ({}, (ConditionUpdate("Accepted", False, "ClassNotFound", "no class"),), {}, "ClassNotFound"),
        (dict(NOTHING_ALLOCATED), (), {}, "WaitForFirstConsumer"),
    ],
)
def test_what_keeps_a_pod_from_an_allocated_claim_is_the_reason_that_it_is_not_ready(
    patch: Patch, updates: tuple[ConditionUpdate, ...], metadata: Patch, reason: str
) -> None:
    claim = a_claim(ALLOCATED, ACCEPTED, **metadata)
    claim = after(claim, with_conditions(claim, patch, NOW, *updates))
    assert told(claim, "Ready")[:2] == ("False", reason)
    assert (told(claim, "Allocated")[0] == "True") == (claim.status.allocation is not None)


def test_a_named_claim_is_not_ready_before_it_was_judged_and_a_stand_in_is_never_judged() -> None:
    named = a_claim()
    assert told(after(named, with_conditions(named, ALLOCATED, NOW)), "Ready")[:2] == ("False", "ClaimPending")
    stand_in = a_claim(labels={"parley.dev/generated-for": "gpu"})
    assert told(after(stand_in, with_conditions(stand_in, ALLOCATED, NOW)), "Ready")[0] == "True"


def test_a_condition_that_goes_makes_way_for_what_it_kept_from_being() -> None:
    claim = a_claim(ALLOCATED, ACCEPTED, RELEASING)
    claim = after(claim, with_conditions(claim, {}, NOW, without="Releasing"))
    assert [c.type for c in claim.status.conditions] == ["Accepted", "Allocated", "Ready"]
    assert told(claim, "Ready")[0] == "True"


def test_what_others_wrote_stays() -> None:
    other = Condition.model_validate(
        {"type": "Healthy", "status": "Unknown", "reason": "R", "message": "", "lastTransitionTime": BEFORE}
    )
    claim = a_claim({"conditions": [other.wire()]})
    patch = with_conditions(claim, ALLOCATED, NOW, ACCEPTED)
    assert patch["conditions"][0] == other.wire()


def test_a_status_of_an_earlier_version_is_completed() -> None:
    old = {
        "state": "allocated",
        **ALLOCATED,
        "conditions": [{**a_claim(None, ACCEPTED).status.conditions[0].wire()}],
    }
    claim = a_claim(old)
    assert told(after(claim, with_conditions(claim, {}, NOW)), "Ready")[0] == "True"


_patches = st.sampled_from(
    [
        {},
        ALLOCATED,
        {**ALLOCATED, "allocation": {}},
        {**NOTHING_ALLOCATED, "reservedFor": None},
        {"deallocationRequested": True},
        {"reservedFor": [{"name": "p", "uid": "u"}]},
    ]
)
_updates = st.lists(
    st.sampled_from(
        [
            ACCEPTED,
            RELEASING,
            ConditionUpdate("Accepted", False, "ParametersInvalid", "bad"),
            ConditionUpdate("Allocated", False, "LimitReached", "full"),
        ]
    ),
    unique_by=lambda update: update.type,
    max_size=3,
)


@given(st.lists(st.tuples(_patches, _updates, st.booleans()), max_size=6), st.booleans())
def test_conditions_agree_with_the_fields_whatever_was_written(
    writes: list[tuple[Patch, list[ConditionUpdate], bool]], deleted: bool
) -> None:
    claim = a_claim(None, **({"deletionTimestamp": BEFORE} if deleted else {}))
    for patch, updates, released in writes:
        claim = after(claim, with_conditions(claim, patch, NOW, *updates, without="Releasing" if released else ""))
        assert with_conditions(claim, {}, NOW) == {}, "writing it again changes nothing"
        found = {c.type: c.status == "True" for c in claim.status.conditions}
        status = claim.status
        assert found["Allocated"] == (status.allocation is not None)
        assert found["Ready"] == (
            found.get("Accepted", False)
            and status.allocation is not None
            and not status.deallocation_requested
            and not found.get("Releasing", False)
            and not deleted
        )
