"""What a standalone driver may write with its own token: answers, what it allocated, and its marks.

The account is the one that `parley driver permissions` makes.
"""

import pytest
from tests.integration.api.isolation.conftest import (
    ACCEPTED,
    ALLOCATED,
    CLASS,
    CLEARED,
    DISKS,
    HANDLE,
    MARKS,
    PROGRESS,
    SEATS,
    USER,
    Body,
    Claim,
    Question,
    entry,
)

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, CLASSES, LEASES, POD_SCHEDULINGS
from parley.cli.permissions import lease_name
from parley.kube.client import Client, Forbidden
from parley.kube.lease import LeaseElector
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster


async def test_a_driver_answers_keeps_its_answer_up_to_date_and_takes_it_back(
    admin: Client, question: Question
) -> None:
    await question.apply(entry("disk", DISKS, viableNodes=["n1"], scores={"n1": 50}))
    await question.apply(entry("disk", DISKS, viableNodes=[], reason="n1: full", alternatives={"nodes": ["n3"]}))
    failed = {"nodeName": "n1", "message": "read-only"}
    await question.apply(entry("disk", DISKS, failure=failed))
    said = (await admin.get(POD_SCHEDULINGS, "pod", question.namespace)).status
    assert [(e.name, e.failure.message if e.failure else "") for e in said.claims] == [
        ("gpu", ""),
        ("seat", ""),
        ("disk", "read-only"),
    ]
    assert said.waiting_for == "WaitingForDrivers"

    await question.apply()
    said = (await admin.get(POD_SCHEDULINGS, "pod", question.namespace)).status
    assert [e.name for e in said.claims] == ["gpu", "seat"]


async def test_the_largest_answer_costs_no_more_than_a_policy_may(admin: Client, question: Question) -> None:
    names = [f"disk-{number}" for number in range(128)]
    nodes = [f"node-{number:03}" for number in range(128)]
    asked = [{"name": name, "driverName": DISKS, "resourceClaimName": name} for name in names]
    body = {"spec": {"claims": asked, "candidateNodes": nodes}, "status": {"claims": []}}
    await admin.patch(POD_SCHEDULINGS, "pod", body, question.namespace)
    viable = {"viableNodes": nodes, "scores": dict.fromkeys(nodes, 50), "reason": "n" * 100}

    await question.apply(*(entry(name, DISKS, **viable) for name in names))
    await question.apply(*(entry(name, DISKS, **{**viable, "reason": "m"}) for name in names))


async def test_other_drivers_answers_are_not_a_drivers_to_write(admin: Client, question: Question) -> None:
    grant = f"grant the verb allocate on resourceclaims.parley.dev/driver with the resource name {SEATS}."
    with pytest.raises(Forbidden) as refused:
        await question.apply(entry("seat", SEATS, viableNodes=["n2"]))
    assert (
        f"PodScheduling {question.namespace}/pod: {USER} cannot write or remove entries of driver {SEATS} in "
        f"status.claims: leave them as they are, or {grant}" in str(refused.value)
    )
    with pytest.raises(Forbidden, match="cannot be changed in one write: write those of one driver at a time"):
        await question.apply(entry("seat", DISKS, viableNodes=["n2"]))
    with pytest.raises(Forbidden, match=r"cannot write or remove entries of driver device\.parley\.dev"):
        await question.apply(entry("gpu", "device.parley.dev", viableNodes=["n2"]))
    with pytest.raises(Forbidden, match="cannot write or remove entries of driver"):
        await question.merge({"status": {"claims": []}})
    mine = entry("disk", DISKS, viableNodes=["n1"])
    with pytest.raises(Forbidden, match="cannot be changed in one write: write those of one driver at a time"):
        await question.apply(mine, entry("seat", SEATS, viableNodes=["n2"]))
    await question.apply(mine)


async def test_a_claim_for_another_driver_is_not_answered(admin: Client, question: Question) -> None:
    empty: Body = {"status": {"claims": []}}
    await admin.patch(POD_SCHEDULINGS, "pod", empty, question.namespace)

    with pytest.raises(Forbidden) as refused:
        await question.apply(entry("seat", DISKS, viableNodes=["n2"]))

    assert (
        f"PodScheduling {question.namespace}/pod: claim seat is for driver {SEATS}, not for driver {DISKS}: "
        "answer those of spec.claims that name it." in str(refused.value)
    )


@pytest.mark.parametrize(
    "body",
    [
        {"spec": {"selectedNode": "n1"}},
        {"spec": {"round": 2}},
        {"spec": {"claims": []}},
        {"spec": None},
        {"status": {"waitingFor": "NothingViable"}},
        {"status": {"message": "go away"}},
        {"status": None},
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"labels": {"parley.dev/drivers": None}}},
        {"metadata": {"finalizers": [driver_finalizer(DISKS)]}},
        {"metadata": {"annotations": {f"{DISKS}/allocating-on": "n1"}}},
    ],
    ids=str,
)
async def test_of_a_question_a_driver_changes_nothing(question: Question, body: Body) -> None:
    with pytest.raises(Forbidden, match="denied request"):
        await question.merge(body)


@pytest.mark.parametrize("others", [[], ["a.example.com/first"], ["a.example.com/first", "z.example.com/last"]])
@pytest.mark.parametrize("annotations", [None, {"a": "first", "z": "last"}])
async def test_a_driver_marks_a_claim_whatever_others_have_written_there(
    own: Claim, others: list[str], annotations: dict[str, str] | None
) -> None:
    bare = {"metadata": {"finalizers": others, "annotations": annotations}}
    await own.admin.patch(CLAIMS, "one", bare, own.namespace)
    await own.mark({**MARKS, "finalizers": [*others, *MARKS["finalizers"]]})
    await own.mark({"finalizers": others, "annotations": {f"{DISKS}/allocating-on": None}})
    await own.mark({"finalizers": [*others, *MARKS["finalizers"]]})
    await own.mark({"finalizers": others})


async def test_a_driver_allocates_and_takes_back(own: Claim) -> None:
    await own.mark({**MARKS, "finalizers": ["parley.dev/in-use", *MARKS["finalizers"]]})
    await own.write({"conditions": [ACCEPTED, PROGRESS]})
    follow = [{**PROGRESS, "type": type_} for type_ in ("Allocated", "Ready")]
    await own.write({**ALLOCATED, "conditions": [ACCEPTED, {**PROGRESS, "status": "False"}, *follow]})
    await own.is_({"reservedFor": [{"name": "pod", "uid": "u1"}]})
    await own.is_({"reservedFor": None, "deallocationRequested": True})
    await own.write(CLEARED)
    await own.mark({"finalizers": ["parley.dev/in-use"], "annotations": {f"{DISKS}/allocating-on": None}})


@pytest.mark.parametrize(
    "status",
    [
        {"reservedFor": [{"name": "mine", "uid": "u2"}]},
        {"deallocationRequested": True},
        {"conditions": []},
        {"conditions": [{**ACCEPTED, "status": "False"}]},
        {"driverName": SEATS},
        {**CLEARED, "driverName": SEATS},
    ],
    ids=str,
)
async def test_the_controllers_part_of_the_status_is_not_the_drivers(own: Claim, status: Body) -> None:
    await own.write(ALLOCATED)
    with pytest.raises(Forbidden, match="denied request"):
        await own.write(status)


@pytest.mark.parametrize(
    "status",
    [
        {**ALLOCATED, "driverName": SEATS},
        {**ALLOCATED, "allocation": {"handles": [{**HANDLE, "driverName": SEATS}]}},
        {**ALLOCATED, "allocation": {"handles": [HANDLE, {**HANDLE, "driverName": "tokens.parley.dev"}]}},
        {
            "driverName": "tokens.parley.dev",
            "allocation": {"handles": [{"driverName": "tokens.parley.dev", "data": {"x": 1}}]},
        },
    ],
    ids=str,
)
async def test_nothing_is_recorded_in_another_drivers_name(own: Claim, status: Body) -> None:
    with pytest.raises(Forbidden, match="denied request"):
        await own.write(status)


async def test_a_claim_of_another_drivers_class_is_not_touched(foreign: Claim) -> None:
    words = (
        f"ResourceClaim {foreign.namespace}/one is of class {CLASS[SEATS]}, whose driver is {SEATS}, and {USER} "
        f"cannot allocate it for another driver: leave it alone, or grant the verb allocate on "
        f"resourceclaims.parley.dev/driver with the resource name {SEATS}."
    )
    with pytest.raises(Forbidden) as refused:
        await foreign.write(ALLOCATED)
    assert words in str(refused.value)
    with pytest.raises(Forbidden, match="whose driver is"):
        await foreign.write({"conditions": [ACCEPTED, PROGRESS]})
    with pytest.raises(Forbidden, match="whose driver is"):
        await foreign.mark({"finalizers": ["parley.dev/in-use", driver_finalizer(DISKS)]})


async def test_what_another_driver_allocated_stays(foreign: Claim) -> None:
    handle = {"driverName": SEATS, "data": {}}
    await foreign.is_({"driverName": SEATS, "allocation": {"handles": [handle]}, "deallocationRequested": True})

    with pytest.raises(Forbidden) as refused:
        await foreign.write(CLEARED)

    assert (
        f"ResourceClaim {foreign.namespace}/one: {USER} cannot write the status of a claim that driver {SEATS} "
        "allocated or allocates: leave it alone, or grant the verb allocate on resourceclaims.parley.dev/driver "
        f"with the resource name {SEATS}." in str(refused.value)
    )


async def test_what_was_allocated_is_taken_back_although_the_class_has_another_driver_now(own: Claim) -> None:
    marked = ["parley.dev/in-use", *MARKS["finalizers"]]
    await own.mark({"finalizers": marked})
    await own.write(ALLOCATED)
    await own.admin.patch(CLASSES, CLASS[DISKS], {"driverName": SEATS})
    try:
        await own.is_({"deallocationRequested": True})
        await own.write(CLEARED)
        await own.mark({"finalizers": ["parley.dev/in-use"]})
    finally:
        await own.admin.patch(CLASSES, CLASS[DISKS], {"driverName": DISKS})


@pytest.mark.parametrize(
    "metadata",
    [
        {"finalizers": []},
        {"finalizers": ["parley.dev/in-use", driver_finalizer(SEATS)]},
        {"finalizers": ["parley.dev/in-use", "example.com/stay"]},
        {"labels": {"parley.dev/generated-for": "gpu"}},
        {"labels": {"kept": None}},
        {"annotations": {"parley.dev/settled": "1"}},
        {"annotations": {f"{SEATS}/allocating-on": "n1"}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]},
    ],
    ids=str,
)
async def test_other_metadata_of_a_claim_is_not_the_drivers(own: Claim, metadata: Body) -> None:
    with pytest.raises(Forbidden, match="denied request"):
        await own.mark(metadata)


async def test_a_driver_elects_by_its_own_lease(cluster: Cluster, admin: Client, driver: Client) -> None:
    elector = LeaseElector(driver, NAMESPACE, lease_name(DISKS), "me")

    async def lead() -> None:
        held = await admin.get(LEASES, lease_name(DISKS), NAMESPACE)
        assert held.spec.holder_identity == "me"

    await elector.run(lead)


async def test_other_leases_are_out_of_reach(admin: Client, driver: Client) -> None:
    await admin.create(LEASES, {"metadata": {"name": f"other-{DISKS}"}}, NAMESPACE)
    body = {"spec": {"holderIdentity": "me"}}
    for name in (f"other-{DISKS}", "parley-controller"):
        with pytest.raises(Forbidden, match="cannot patch resource"):
            await driver.patch(LEASES, name, body, NAMESPACE)
    with pytest.raises(Forbidden, match="cannot create resource"):
        await driver.create(LEASES, {"metadata": {"name": "mine"}}, NAMESPACE)
