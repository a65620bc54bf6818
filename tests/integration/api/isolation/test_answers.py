"""What a standalone driver tries to write beyond its own answers in a PodScheduling, on a real API server."""

from dataclasses import replace

import pytest
from tests.integration.api.isolation.conftest import DISKS, SEATS, USER, Body, Question, entry, kind

from parley.api.names import FIELD_MANAGER
from parley.api.resources import POD_SCHEDULINGS
from parley.kube.client import Client, Forbidden, NotFound

pytestmark = pytest.mark.cluster

OWNS_ONLY = "can own only its own entries of status.claims, as the field manager of its name"
SEAT = entry("seat", SEATS, viableNodes=["n1"])
DISK = entry("disk", DISKS, viableNodes=["n1"])


@pytest.fixture
def victim(question: Question, other_driver: Client) -> Question:
    """The question as the driver for seats answers it."""
    return replace(question, driver=other_driver)


async def answers(admin: Client, namespace: str) -> list[str]:
    found = await admin.get(POD_SCHEDULINGS, "pod", namespace)
    return [answer.name for answer in found.status.claims]


@pytest.mark.parametrize("manager", [DISKS, SEATS, FIELD_MANAGER, "anybody"])
async def test_an_answer_is_withdrawn_by_whose_it_is_whatever_other_drivers_apply(
    admin: Client, question: Question, victim: Question, manager: str
) -> None:
    await victim.apply(SEAT, manager=SEATS)
    failed = entry("seat", SEATS, failure={"nodeName": "n1", "message": "none left"})
    await victim.apply(failed, manager=SEATS)

    with pytest.raises(Forbidden, match=OWNS_ONLY if manager != SEATS else "denied request"):
        await question.apply(failed, DISK, manager=manager)

    await question.apply(DISK)
    await victim.apply(SEAT, manager=SEATS)
    seat = (await admin.get(POD_SCHEDULINGS, "pod", question.namespace)).status.claims[1]
    assert (seat.name, seat.failure) == ("seat", None)
    await victim.apply(manager=SEATS)
    assert "disk" in await answers(admin, question.namespace)


@pytest.mark.parametrize("manager", [SEATS, FIELD_MANAGER, "anybody"])
async def test_an_answer_has_the_drivers_name_as_its_field_manager(question: Question, manager: str) -> None:
    with pytest.raises(Forbidden) as refused:
        await question.apply(DISK, manager=manager)

    assert (
        f"PodScheduling {question.namespace}/pod: {USER}, a driver, {OWNS_ONLY}, but this write is of the manager "
        f'"{manager}": send all of them, and nothing else, by server-side apply with fieldManager=<driver>.'
        in str(refused.value)
    )


@pytest.mark.parametrize(
    "part",
    [
        {"spec": {"claims": [{"name": "seat", "driverName": SEATS, "resourceClaimName": "seat"}]}},
        {"spec": {"claims": [{"name": "disk", "driverName": DISKS, "resourceClaimName": "disk"}]}},
        {"spec": {"round": 1, "candidateNodes": ["n1", "n2"]}},
        {"metadata": {"labels": {"parley.dev/drivers": "standalone"}}},
        {"status": {"claims": [DISK], "waitingFor": "WaitingForDrivers"}},
    ],
    ids=str,
)
async def test_a_question_is_not_kept_as_it_is_by_applying_what_it_says(question: Question, part: Body) -> None:
    body = {**kind(POD_SCHEDULINGS), "status": {"claims": [DISK]}, **part}
    with pytest.raises(Forbidden, match=OWNS_ONLY):
        await question.driver.apply(
            POD_SCHEDULINGS, "pod", body, question.namespace, field_manager=DISKS, force=True
        )


async def test_who_owns_what_is_not_forgotten(question: Question, victim: Question) -> None:
    await victim.apply(SEAT, manager=SEATS)

    with pytest.raises(Forbidden, match=OWNS_ONLY):
        await question.merge({"metadata": {"managedFields": [{}]}})


async def test_a_merge_patch_is_no_answer(admin: Client, question: Question) -> None:
    there = (await admin.get(POD_SCHEDULINGS.untyped(), "pod", question.namespace))["status"]["claims"]

    with pytest.raises(Forbidden, match=OWNS_ONLY):
        await question.merge({"status": {"claims": [*there, DISK]}})


async def test_answer_and_question_are_not_written_together(question: Question) -> None:
    body = {**kind(POD_SCHEDULINGS), "spec": {"selectedNode": "n1"}, "status": {"claims": [DISK]}}
    with pytest.raises(Forbidden, match="leave out spec and the rest of status"):
        await question.driver.apply(
            POD_SCHEDULINGS, "pod", body, question.namespace, field_manager=DISKS, force=True
        )


async def test_an_entry_does_not_change_hands(admin: Client, question: Question) -> None:
    await question.apply(DISK)
    with pytest.raises(Forbidden, match=f"cannot write or remove entries of driver {SEATS}"):
        await question.apply(entry("disk", SEATS, viableNodes=["n1"]))
    with pytest.raises(Forbidden, match="write those of one driver at a time"):
        await question.apply(entry("seat", DISKS, viableNodes=[]))
    assert await answers(admin, question.namespace) == ["gpu", "seat", "disk"]


async def test_nobody_answers_for_a_claim_that_no_driver_is_asked_about(question: Question) -> None:
    with pytest.raises(Forbidden) as refused:
        await question.apply(DISK, entry("ssd", DISKS, viableNodes=["n1"]))

    assert (
        f"PodScheduling {question.namespace}/pod: no driver is asked about claim ssd: answer those of "
        f"spec.claims that name driver {DISKS}." in str(refused.value)
    )


async def test_an_answer_to_a_pod_that_is_gone_makes_nothing(admin: Client, question: Question) -> None:
    await admin.delete(POD_SCHEDULINGS, "pod", question.namespace)

    with pytest.raises(Forbidden, match="cannot create resource"):
        await question.driver.apply(
            POD_SCHEDULINGS,
            "pod",
            {**kind(POD_SCHEDULINGS), "metadata": {"name": "pod"}, "status": {"claims": [DISK]}},
            question.namespace,
            field_manager=DISKS,
            force=True,
        )

    with pytest.raises(NotFound):
        await admin.get(POD_SCHEDULINGS, "pod", question.namespace)


async def test_an_entry_of_an_earlier_manager_is_taken_over(admin: Client, question: Question) -> None:
    """What an administrator set by hand in its name does not keep a driver from answering."""
    by_hand = {**DISK, "reason": "by hand"}
    there = (await admin.get(POD_SCHEDULINGS.untyped(), "pod", question.namespace))["status"]["claims"]
    await admin.patch(
        POD_SCHEDULINGS, "pod", {"status": {"claims": [*there, by_hand]}}, question.namespace, field_manager="hand"
    )

    await question.apply(entry("disk", DISKS, viableNodes=["n2"]))

    disk = (await admin.get(POD_SCHEDULINGS, "pod", question.namespace)).status.claims[2]
    assert (disk.viable_nodes, disk.reason) == (("n2",), "by hand")
