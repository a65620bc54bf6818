"""Users may change all of a claim but the finalizers and annotations by which drivers recognise their claims."""

import pytest
from tests.integration.api.isolation.conftest import CLASS, DISKS, MARKS, SEATS, Body, Claim, a_claim, kind

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS
from parley.cli.permissions import account_name
from parley.kube.client import Client, Forbidden
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster


async def test_users_label_their_claims_of_any_class(admin: Client, driver: Client, namespace: str) -> None:
    claim = await a_claim(driver, admin, namespace, SEATS)
    raw_claim = {"metadata": {"labels": {"a": "b"}}}
    assert (await claim.admin.patch(CLAIMS, "one", raw_claim, namespace)).metadata.labels["a"] == "b"


@pytest.mark.parametrize("mark", ["finalizers", "annotations"])
async def test_users_create_no_claim_that_a_driver_seems_to_have_begun(
    user: Client, namespace: str, mark: str
) -> None:
    body = {"metadata": {"name": "one", mark: MARKS[mark]}, "spec": {"resourceClassName": CLASS[DISKS]}}
    (name,) = MARKS[mark]

    with pytest.raises(Forbidden) as refused:
        await user.create(CLAIMS, body, namespace)
    with pytest.raises(Forbidden, match="by which driver"):
        await user.apply(CLAIMS, "one", {**kind(CLAIMS), **body}, namespace, field_manager="me", force=True)

    assert (
        f"ResourceClaim {namespace}/one: system:serviceaccount:{namespace}:user cannot set, change or remove "
        f"{name} in metadata.finalizers and metadata.annotations, by which driver {DISKS} recognises what it may "
        "hold: create the claim without them, later leave them as they are, or grant the verb allocate on "
        f"resourceclaims.parley.dev/driver with the resource name {DISKS}." in str(refused.value)
    )
    await user.create(CLAIMS, {**body, "metadata": {"name": "one"}}, namespace)


async def test_what_a_driver_has_begun_is_its_users_in_all_but_the_drivers_marks(
    own: Claim, user: Client, namespace: str
) -> None:
    finalizers = ["parley.dev/in-use", *MARKS["finalizers"]]
    await own.mark({**MARKS, "finalizers": finalizers})
    note = f"{DISKS}/allocating-on"

    refused: list[Body] = [
        {"finalizers": ["parley.dev/in-use"]},
        {"annotations": {note: "n2"}},
        {"annotations": {note: None}},
        {"annotations": None},
        {"finalizers": [*finalizers, driver_finalizer(SEATS)]},
        {"annotations": {f"{SEATS}/allocating-on": "n1"}},
    ]
    for metadata in refused:
        with pytest.raises(Forbidden, match="denied request"):
            await user.patch(CLAIMS, "one", {"metadata": metadata}, namespace)

    applied = {**kind(CLAIMS), "metadata": {"labels": {"a": "b"}}, "spec": {"resourceClassName": CLASS[DISKS]}}
    await user.apply(CLAIMS, "one", applied, namespace, field_manager="me", force=True)
    same = {"finalizers": [*finalizers, "example.com/mine"], "annotations": {note: "n1", "example.com/mine": "x"}}
    await user.patch(CLAIMS, "one", {"metadata": same}, namespace)
    await own.mark({"annotations": {note: "n2"}})
    await user.delete(CLAIMS, "one", namespace)
    await own.mark({"finalizers": ["parley.dev/in-use", "example.com/mine"], "annotations": {note: None}})


async def test_only_an_administrator_takes_a_driver_that_is_gone_off_a_claim(own: Claim, user: Client) -> None:
    await own.mark({**MARKS, "finalizers": ["parley.dev/in-use", *MARKS["finalizers"]]})
    left: Body = {"finalizers": ["parley.dev/in-use"], "annotations": {f"{DISKS}/allocating-on": None}}

    with pytest.raises(Forbidden, match="by which driver"):
        await user.patch(CLAIMS, "one", {"metadata": left}, own.namespace)

    claim = await own.admin.patch(CLAIMS, "one", {"metadata": left}, own.namespace)
    assert claim.metadata.finalizers == ("parley.dev/in-use",)


async def test_a_driver_that_is_a_user_too_creates_none_for_another_driver(
    cluster: Cluster, driver: Client, namespace: str
) -> None:
    account = f"--serviceaccount={NAMESPACE}:{account_name(DISKS)}"
    cluster.kubectl("create", "rolebinding", "driver", "--clusterrole=edit", account, "-n", namespace)
    body: Body = {"metadata": {"name": "one"}, "spec": {"resourceClassName": CLASS[SEATS]}}

    for finalizers in ([driver_finalizer(SEATS)], [driver_finalizer(DISKS), driver_finalizer(SEATS)]):
        with pytest.raises(Forbidden, match="by which driver"):
            await driver.create(CLAIMS, {**body, "metadata": {"name": "one", "finalizers": finalizers}}, namespace)
    await driver.create(CLAIMS, body, namespace)


async def test_a_finalizer_that_is_there_several_times_is_its_drivers_to_remove(own: Claim) -> None:
    others = ["parley.dev/in-use", "example.com/in-use"]
    twice = [*others, *MARKS["finalizers"], *MARKS["finalizers"]]
    await own.admin.patch(CLAIMS, "one", {"metadata": {**MARKS, "finalizers": twice}}, own.namespace)

    with pytest.raises(Forbidden, match="change no other metadata"):
        await own.mark({"finalizers": others[:1], "annotations": {NOTE: None}})
    await own.mark({"finalizers": others, "annotations": {NOTE: None}})


NOTE = f"{DISKS}/allocating-on"

LIKE_NOTES = [
    f', "{NOTE}":"n1"',
    f'", "{NOTE}":"n1", "',
    f'\\", "{NOTE}":"n1',
    f'"{NOTE}":"n1"}}',
    f"\n{NOTE}\n",
    ", ",
    '"',
    "\\",
]


@pytest.mark.parametrize("value", LIKE_NOTES)
@pytest.mark.parametrize("name", ["a", "zzz.example.com/a"], ids=["before", "after"])
async def test_annotations_whose_values_look_like_drivers_are_their_users(
    own: Claim, user: Client, name: str, value: str
) -> None:
    finalizers = ["parley.dev/in-use", *MARKS["finalizers"]]
    others = {name: value, "b.example.com/b": "", "zzz.example.com/b": value}
    await user.patch(CLAIMS, "one", {"metadata": {"annotations": others}}, own.namespace)

    await own.mark({**MARKS, "finalizers": finalizers})
    for changed in ({name: None}, {name: f"{value}x"}, {name: value[1:] or None}, {f"{name}2": value}):
        for note in ({}, {NOTE: None}, {NOTE: "n2"}):
            with pytest.raises(Forbidden, match="change no other metadata"):
                await own.mark({"annotations": {**note, **changed}})
    await user.patch(CLAIMS, "one", {"metadata": {"annotations": {name: None}}}, own.namespace)
    await user.patch(CLAIMS, "one", {"metadata": {"annotations": {name: value}}}, own.namespace)
    await own.mark({"annotations": {NOTE: "n2"}})
    await own.mark({"finalizers": ["parley.dev/in-use"], "annotations": {NOTE: None}})

    assert (await own.admin.get(CLAIMS, "one", own.namespace)).metadata.annotations == others
