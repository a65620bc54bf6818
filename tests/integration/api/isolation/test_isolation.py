"""What a standalone driver tries beyond its own claims and answers, with its own token, on a real API server."""

import json
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.usage import Process, cpu_seconds
from tests.cluster.raw import RawServer, Refused, raw, with_token
from tests.integration.api.isolation.conftest import (
    ALLOCATED,
    CLASS,
    CLEARED,
    DISKS,
    MARKS,
    SEATS,
    USER,
    Body,
    Claim,
    Question,
    a_claim,
    entry,
    kind,
)

from parley.api.names import FIELD_MANAGER, driver_finalizer
from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    EVENTS,
    LEASES,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    Resource,
)
from parley.cli.permissions import account_name, lease_name
from parley.kube.client import Client, Forbidden, NotFound
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
OWNS_ONLY = "can own only its own entries of status.claims, as the field manager of its name"
SEAT = entry("seat", SEATS, viableNodes=["n1"])
DISK = entry("disk", DISKS, viableNodes=["n1"])


@pytest.fixture
def token(cluster: Cluster) -> RawServer:
    """Any request, as the driver for disks."""
    return with_token(cluster, cluster.kubeconfig_for_service_account(NAMESPACE, account_name(DISKS)))


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


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {f"{DISKS}/allocating-on": "n1"}},
        {"annotations": {f"{SEATS}/allocating-on": None}},
        {"finalizers": ["parley.dev/in-use"]},
        {"finalizers": ["parley.dev/in-use", driver_finalizer(SEATS), driver_finalizer(DISKS)]},
        {"managedFields": [{}]},
        {"labels": {"parley.dev/generated-for": "gpu"}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]},
    ],
    ids=str,
)
async def test_nothing_at_all_is_written_to_a_claim_of_another_drivers_class(
    foreign: Claim, other_driver: Client, metadata: Body, mode: str
) -> None:
    name = f"one-{mode.lower()}"
    spec = {"resourceClassName": CLASS[SEATS], "allocationMode": mode}
    marked = {"finalizers": ["parley.dev/in-use"]}
    await foreign.admin.create(CLAIMS, {"metadata": {"name": name, **marked}, "spec": spec}, foreign.namespace)
    begun = {
        "finalizers": ["parley.dev/in-use", driver_finalizer(SEATS)],
        "annotations": {f"{SEATS}/allocating-on": "n1"},
    }
    await other_driver.patch(CLAIMS, name, {"metadata": begun}, foreign.namespace)

    with pytest.raises(Forbidden, match="denied request"):
        await foreign.driver.patch(CLAIMS, name, {"metadata": metadata}, foreign.namespace)


async def test_an_immediate_claim_of_another_drivers_class_is_not_allocated(foreign: Claim) -> None:
    spec = {"resourceClassName": CLASS[SEATS], "allocationMode": "Immediate"}
    await foreign.admin.create(CLAIMS, {"metadata": {"name": "now"}, "spec": spec}, foreign.namespace)

    with pytest.raises(Forbidden, match=f"of class {CLASS[SEATS]}, whose driver is {SEATS}"):
        await foreign.driver.patch(CLAIMS, "now", {"status": ALLOCATED}, foreign.namespace, subresource="status")


async def test_what_is_asked_for_is_its_users(own: Claim) -> None:
    for spec in ({"resourceClassName": CLASS[SEATS]}, {"parameters": {"size": "1Ti"}}):
        with pytest.raises(Exception, match="spec is immutable"):
            await own.driver.patch(CLAIMS, "one", {"spec": spec}, own.namespace)


async def test_status_and_the_rest_are_not_written_together(own: Claim) -> None:
    marks = {**MARKS, "finalizers": ["parley.dev/in-use", *MARKS["finalizers"]], "labels": {"kept": None}}
    body = {"metadata": marks, "spec": {"resourceClassName": CLASS[SEATS]}, "status": ALLOCATED}

    written = await own.driver.patch(CLAIMS, "one", body, own.namespace, subresource="status")

    assert written.status.driver_name == DISKS
    assert written.metadata.finalizers == ("parley.dev/in-use",)
    assert written.metadata.labels == {"kept": ""}
    assert written.spec.resource_class_name == CLASS[DISKS]


async def test_how_long_an_unused_claim_stays_is_the_controllers_to_say(own: Claim) -> None:
    """A new controller would go by it, and keep the claim although its class does not say so."""
    forever = {"keptUntil": "9999-01-01T00:00:00Z"}

    with pytest.raises(Forbidden, match="the rest of status belongs to the controller"):
        await own.write({**ALLOCATED, **forever})

    await own.write(ALLOCATED)
    await own.is_(forever)
    with pytest.raises(Forbidden, match="the rest of status belongs to the controller"):
        await own.write({"keptUntil": None})
    await own.write(CLEARED)


async def test_two_drivers_names_are_not_in_one_write(own: Claim) -> None:
    both = {"finalizers": ["parley.dev/in-use", driver_finalizer(DISKS), driver_finalizer(SEATS)]}
    with pytest.raises(Forbidden, match="denied request"):
        await own.mark(both)
    handles = [{"driverName": DISKS, "data": {}}, {"driverName": SEATS, "data": {}}]
    with pytest.raises(Forbidden, match="have to be of one driver"):
        await own.write({"driverName": DISKS, "allocation": {"handles": handles}})


async def test_an_allocation_does_not_change_hands(own: Claim, other_driver: Client) -> None:
    await own.write({"driverName": DISKS, "allocation": {"handles": []}})
    taken = {"driverName": SEATS}
    for client in (own.driver, other_driver):
        with pytest.raises(Forbidden, match="denied request"):
            await client.patch(CLAIMS, "one", {"status": taken}, own.namespace, subresource="status")


NAMED: dict[str, Resource[Any]] = {
    "PodScheduling": POD_SCHEDULINGS,
    "ResourceClaim": CLAIMS,
    "ResourceClaimTemplate": TEMPLATES,
    "ResourceClass": CLASSES,
    "ClaimRelease": CLAIM_RELEASES,
    "built-in ResourceClaim": BUILTIN_CLAIMS,
    "built-in ResourceClaimTemplate": BUILTIN_TEMPLATES,
    "ResourceSlice": RESOURCE_SLICES,
    "Pod": PODS,
    "Node": NODES,
    "Lease": LEASES,
    "Event": EVENTS,
    "Secret": Resource("", "v1", "secrets", "Secret", True, dict[str, Any]),
    "ConfigMap": Resource("", "v1", "configmaps", "ConfigMap", True, dict[str, Any]),
    "ValidatingAdmissionPolicyBinding": Resource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        False,
        dict[str, Any],
    ),
    "ClusterRoleBinding": Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, dict[str, Any]
    ),
}
READS = {"PodScheduling", "ResourceClaim", "ResourceClass", "ResourceSlice", "Node"}
PATCHES = {"PodScheduling", "ResourceClaim"}


@pytest.mark.parametrize("what", NAMED)
def test_requests_that_a_driver_may_make(cluster: Cluster, token: RawServer, namespace: str, what: str) -> None:
    resource = NAMED[what]
    place = namespace if resource.namespaced else None
    collection, one = resource.path(place), resource.path(place, "nothing")
    spec = {"spec": {"resourceClassName": CLASS[DISKS]}} if resource is CLAIMS else {}
    body = {**kind(resource), "metadata": {"name": "nothing"}, **spec}
    tried: dict[str, tuple[str, str, object, str]] = {
        "get": ("GET", one, None, ""),
        "list": ("GET", collection, None, ""),
        "create": ("POST", collection, body, "application/json"),
        "update": ("PUT", one, body, "application/json"),
        "patch": ("PATCH", one, {"metadata": {"labels": {"a": "b"}}}, MERGE),
        "apply": ("PATCH", f"{one}?fieldManager={DISKS}&force=true", body, APPLY),
        "patch status": ("PATCH", f"{one}/status", {"status": {}}, MERGE),
        "delete": ("DELETE", one, None, ""),
        "deletecollection": ("DELETE", collection, None, ""),
    }

    let_in = {verb for verb, request in tried.items() if not forbidden(token, *request)}

    expected = {"get", "list"} if what in READS else set()
    expected |= {"patch"} if what in PATCHES else set()
    expected |= {"patch status"} if what == "ResourceClaim" else set()
    assert let_in == expected


def forbidden(token: RawServer, method: str, path: str, body: object, content: str) -> bool:
    """Whether the account lacks the right; a request that is let in may fail for other reasons."""
    try:
        token.request(method, path, body, content)
    except Refused as refused:
        return refused.status == 403
    return False


def test_only_its_own_lease_is_a_drivers(cluster: Cluster, token: RawServer) -> None:
    mine, others = (LEASES.path(NAMESPACE, lease_name(driver)) for driver in (DISKS, SEATS))
    held = {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}

    assert token.request("PATCH", mine, held, MERGE)["spec"]["holderIdentity"] == "me"

    for path in (
        others,
        LEASES.path(NAMESPACE, "parley-controller"),
        LEASES.path("kube-system", "kube-scheduler"),
    ):
        assert forbidden(token, "GET", path, None, "")
        assert forbidden(token, "PATCH", path, held, MERGE)
        assert forbidden(token, "DELETE", path, None, "")
    assert forbidden(token, "DELETE", mine, None, "")
    assert "holderIdentity" not in json.dumps(raw(cluster).get(others)["spec"])


async def test_a_class_is_not_made_a_drivers_own(cluster: Cluster, token: RawServer, foreign: Claim) -> None:
    body = {**kind(CLASSES), "metadata": {"name": f"{CLASS[DISKS]}-2"}, "driverName": DISKS}
    assert forbidden(token, "POST", CLASSES.path(), body, "application/json")
    assert forbidden(token, "PATCH", CLASSES.path(name=CLASS[SEATS]), {"driverName": DISKS}, MERGE)
    assert raw(cluster).get(CLASSES.path(name=CLASS[SEATS]))["driverName"] == SEATS


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


async def test_its_own_claim_is_a_drivers_to_mark_until_the_end(own: Claim, other_driver: Client) -> None:
    """Also if its class has another driver by now, which may not take part."""
    await own.mark({**MARKS, "finalizers": ["parley.dev/in-use", *MARKS["finalizers"]]})
    await own.admin.patch(CLASSES, CLASS[DISKS], {"driverName": SEATS})
    try:
        await own.mark({"annotations": {f"{DISKS}/allocating-on": "n2"}})
        await own.mark({"finalizers": ["parley.dev/in-use"], "annotations": {f"{DISKS}/allocating-on": None}})
        with pytest.raises(Forbidden, match="whose driver is"):
            await own.mark({"annotations": {f"{DISKS}/allocating-on": "n3"}})
    finally:
        await own.admin.patch(CLASSES, CLASS[DISKS], {"driverName": DISKS})


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


async def test_very_many_annotations_and_finalizers_cost_no_more_than_a_policy_may(
    user: Client, namespace: str
) -> None:
    finalizers = [f"example.com/f{number}" for number in range(10_000)]
    annotations = {f"a{number}": "" for number in range(20_000)}
    meta = {"name": "one", "finalizers": finalizers, "annotations": annotations}
    spec = {"resourceClassName": CLASS[DISKS]}
    marked = {**meta, "annotations": {**annotations, **MARKS["annotations"]}}
    with pytest.raises(Forbidden, match=f"cannot set, change or remove {DISKS}/allocating-on in"):
        await user.create(CLAIMS, {"metadata": marked, "spec": spec}, namespace)

    await user.create(CLAIMS, {"metadata": meta, "spec": spec}, namespace)
    await user.patch(CLAIMS, "one", {"metadata": {"annotations": {"a0": "b"}}}, namespace)
    await user.patch(CLAIMS, "one", {"metadata": {"finalizers": None}}, namespace)


async def test_very_many_annotations_cost_a_driver_little_more_than_they_cost_the_api_server(
    cluster: Cluster, own: Claim, user: Client
) -> None:
    """In its CPU time, compared with writes of an administrator, to whom no policy applies."""
    server = Process("kube-apiserver", str(cluster.component("kube-apiserver").pid))
    many = {f"a{number}": "" for number in range(15_000)}
    await user.patch(CLAIMS, "one", {"metadata": {"annotations": many}}, own.namespace)
    before = cpu_seconds(server)
    for value in ("1", "2", None):
        labels = {"labels": {"example.com/mine": value}}
        await own.admin.patch(CLAIMS, "one", {"metadata": labels}, own.namespace)
    unguarded = cpu_seconds(server) - before

    await own.mark({**MARKS, "finalizers": ["parley.dev/in-use", *MARKS["finalizers"]]})
    await own.mark({"annotations": {f"{DISKS}/allocating-on": "n2"}})
    await own.mark({"finalizers": ["parley.dev/in-use"], "annotations": {f"{DISKS}/allocating-on": None}})

    assert cpu_seconds(server) - before - unguarded < 4 * unguarded
    with pytest.raises(Forbidden, match="change no other metadata"):
        await own.mark({"annotations": {f"{DISKS}/allocating-on": "n1", "a7": None}})


async def test_the_largest_claims_are_drivers_to_mark(own: Claim, user: Client) -> None:
    """What a policy may cost is limited by the API server, and a write that would cost more is refused."""
    for annotations, finalizers in (
        ({"a": "\1" * 150_000}, []),
        ({f"{number:x}": "" for number in range(50_000)}, []),
        ({}, ["example.com/a"] * 40_000),
    ):
        kept = ["parley.dev/in-use", *finalizers]
        body = {"annotations": annotations, "finalizers": kept}
        await user.patch(CLAIMS, "one", {"metadata": body}, own.namespace)
        await own.mark({**MARKS, "finalizers": [*kept, *MARKS["finalizers"]]})
        await own.mark({"finalizers": kept, "annotations": {f"{DISKS}/allocating-on": None}})
        await user.patch(CLAIMS, "one", {"metadata": {"annotations": None}}, own.namespace)


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


async def test_a_claim_does_not_get_more_drivers_finalizers_than_any_has(user: Client, namespace: str) -> None:
    finalizers = [f"x{number}.example.com/deletion-protection" for number in range(20_000)]
    body = {"metadata": {"name": "one", "finalizers": finalizers}, "spec": {"resourceClassName": CLASS[DISKS]}}

    with pytest.raises(Forbidden) as refused:
        await user.create(CLAIMS, body, namespace)

    assert (
        f"ResourceClaim {namespace}/one has more than 64 finalizers <driver>/deletion-protection and annotations "
        "<driver>/allocating-on: leave its annotations, and these finalizers, as they are." in str(refused.value)
    )
