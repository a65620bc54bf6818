"""Room that is reserved for the users of a claim, under the real scheduler: a late big task fits beside others.

    PARLEY_KUBERNETES=v1.36.3 pytest tests/integration/native/test_reserved_room.py

runs it on another Kubernetes.
"""

import time
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.manifests import Manifest, claim, container, pod, resource_class, workspace_disk
from tests.cluster.namespace import Namespace
from tests.cluster.patience import patient
from tests.cluster.starting import DEPLOY
from tests.cluster.watching import LIMIT, until
from tests.integration.native.conftest import Parley

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import Hold
from parley.api.resources import PODS
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import Client, Forbidden
from parley.scheduler.settings import ControllerSettings
from parley_devcluster import Cluster, ClusterError
from parley_devcluster.fake_nodes import ALLOCATABLE
from parley_devcluster.manifests import template as chart
from parley_devcluster.parley import CONTROLLER
from parley_devcluster.parley import NAMESPACE as HOME

pytestmark = pytest.mark.cluster

CPUS = 32
SLOTS = int(ALLOCATABLE["pods"])
"""Of a node."""
KUBE_SCHEDULER = "default-scheduler"
PRIORITY_CLASS = "parley-reservation"
"""Which the chart makes for reservation pods."""


class Directories(WorkspaceDriver):
    """There is no node plugin here that would remove anything."""

    leaves_data = False


@pytest.fixture
async def team(admin: Client, parley: Parley) -> AsyncIterator[Namespace]:
    """A namespace. Workspaces of a node have its one device in common, so nobody looks who has it."""
    async with Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine:
        yield mine
    await until(admin, PODS, lambda pods: not pods, "the reservation pods are gone", namespace=HOME)


def task(name: str, of: str, cpus: int) -> Manifest:
    resources = {"requests": {"cpu": str(cpus)}, "claims": [{"name": "work"}]}
    return pod(name, claims={"work": of}, containers=[container("main", "true", resources=resources)])


def late(name: str, priority_class: str) -> Manifest:
    """A task of `build` with a priority."""
    body = task(name, "build", 1)
    return {**body, "spec": {**body["spec"], "priorityClassName": priority_class}}


async def begin(
    team: Namespace,
    parley: Parley,
    hold: Hold = "Ledger",
    *,
    shareable: bool = False,
    yields_to: Collection[str] = (),
    **reserve: str | int,
) -> None:
    """One node has a disk. The first task of `build` was a small one, and has ended."""
    await parley.kill()
    parley.drivers = (Directories,)
    parley.settings = ControllerSettings(
        reservation_schedulers=(KUBE_SCHEDULER,), reservation_priority=PRIORITY_CLASS
    )
    await parley.start()
    class_ = {"whenUnused": {"keepSeconds": 600}, "shareable": shareable}
    await nobody_else_there(team)
    most = {"maxReserve": {"cpu": str(CPUS), "pods": SLOTS}, "hold": hold, "yieldsTo": [*yields_to]}
    await team.create(
        workspace_disk("node-0"), resource_class("builds", Directories.name, parameters=most, **class_)
    )
    parameters = {"reserve": reserve} if reserve else {}
    await team.create(claim("build", "builds", size="1Mi", **parameters))
    await team.create(task("clone", "build", 1))
    assert (await team.bound("clone")).spec.node_name == "node-0"
    await team.finish("clone")
    await team.claim("build", lambda mirror: not mirror.status.reserved_for, "is used by nobody")


async def nobody_else_there(team: Namespace) -> None:
    """Return when no pod of anybody else is bound to the node, or holds room there: one more would be one too many
    where all slots count."""

    def on_it(pod: Pod) -> bool:
        ended = pod.status.phase in ("Succeeded", "Failed")
        return not ended and "node-0" in (pod.spec.node_name, pod.status.nominated_node_name)

    what = "no pod of another test is on node-0"
    await until(team.client, PODS, lambda pods: not any(map(on_it, pods.values())), what)


async def test_with_a_reservation_the_late_big_task_fits_and_others_are_kept_out(
    team: Namespace, parley: Parley
) -> None:
    await begin(team, parley, cpu="24")
    for name in ("beside", "kept-out"):
        await team.create(claim(name, "builds", size="1Mi"), task(name, name, 8))
        if name == "beside":
            assert (await team.bound(name)).spec.node_name == "node-0"
    told = await team.waits("kept-out", reasons.NO_CANDIDATES)
    assert f"too little cpu left: 24 cpu are reserved for claim {team.name}/build" in told

    await parley.kill()
    await parley.start()
    await team.create(task("late", "build", 24))
    assert (await team.bound("late")).spec.node_name == "node-0"
    await team.finish("late")
    await team.waits("kept-out", reasons.NO_CANDIDATES)


async def test_pod_slots_are_kept_too_and_the_reason_says_so(team: Namespace, parley: Parley) -> None:
    await begin(team, parley, pods=SLOTS - 1)
    for name in ("beside", "kept-out"):
        await team.create(claim(name, "builds", size="1Mi"), task(name, name, 1))
        if name == "beside":
            assert (await team.bound(name)).spec.node_name == "node-0"
    told = await team.waits("kept-out", reasons.NO_CANDIDATES)
    assert f"no pod slots left: {SLOTS - 1} pod slots are reserved for claim {team.name}/build" in told
    await team.create(task("late", "build", 1))
    assert (await team.bound("late")).spec.node_name == "node-0"


async def test_without_one_others_have_the_room(team: Namespace, parley: Parley) -> None:
    await begin(team, parley)
    for name in ("beside", "one-more"):
        await team.create(claim(name, "builds", size="1Mi"), task(name, name, 8))
        assert (await team.bound(name)).spec.node_name == "node-0"
    await team.create(task("late", "build", 24))
    assert "too little cpu left" in await team.waits("late", reasons.CLAIM_STRANDED)


@pytest.fixture
def reservation_pods(cluster: Cluster) -> Iterator[None]:
    """What the chart gives the controller for them."""
    with granted(cluster, {"reservationPods": {"enabled": True}}, "base/reservation-pods"):
        yield


@pytest.fixture
def beside_a_scheduler(cluster: Cluster) -> Iterator[None]:
    """The same, and what it gives the second scheduler that is in the controller's pods, with the same account."""
    values = {"reservationPods": {"enabled": True}, "secondScheduler": {"enabled": True}}
    with granted(cluster, values, "base/reservation-pods", "extender/permissions/scheduler"):
        yield


@contextmanager
def granted(cluster: Cluster, values: Mapping[str, Any], *templates: str) -> Iterator[None]:
    """These of the chart's templates, within the block."""
    shown = (argument for name in templates for argument in ("--show-only", f"templates/{name}.yaml"))
    manifest = chart(DEPLOY, values, *shown)
    (words,) = [words for words in POLICIES if words in manifest]
    cluster.kubectl("apply", "-f", "-", stdin=manifest)
    refuses(cluster, words)
    yield
    cluster.kubectl("delete", "-f", "-", stdin=manifest)
    refuses(cluster, "")


CONTAINERS: Manifest = {"containers": [container("main", "true")]}
PLAIN: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}, "spec": CONTAINERS}


POLICIES = ("can create and delete only pods", "can create only pods")
"""What the policy of that name says without a scheduler beside the controller, and with one."""


def refuses(cluster: Cluster, expected: str) -> None:
    """Return when the API server has learned of the policy that says this, or that there is none any more: one
    that a test before applied may still be in force."""
    deadline = time.monotonic() + LIMIT
    while (found := refused(cluster)) != expected:
        assert time.monotonic() < deadline, f"the admission policy in force says {found!r}, not {expected!r}"


def refused(cluster: Cluster) -> str:
    """How the policy keeps the controller's account from making other pods; "" if it does not."""
    account = f"system:serviceaccount:{HOME}:{CONTROLLER}"
    try:
        cluster.kubectl(
            "create", "--as", account, "-n", HOME, "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(PLAIN)
        )
    except ClusterError as error:
        return next((words for words in POLICIES if words in str(error)), "")
    return ""


def ordinary(name: str, cpus: int | str = 1) -> Manifest:
    """A pod without claims, which Parley does not judge, for the node with the disk."""
    resources = {"requests": {"cpu": str(cpus)}}
    selector = {"kubernetes.io/hostname": "node-0"}
    return pod(name, containers=[container("main", "true", resources=resources)], nodeSelector=selector)


def decided(pods: Collection[Pod]) -> bool:
    """The scheduler has looked at each of them."""
    return all(one.spec.node_name or "PodScheduled" in {c.type for c in one.status.conditions} for one in pods)


async def there(team: Namespace, prefix: str, count: int) -> None:
    """Return when so many of these pods are bound, and the scheduler has looked at all."""

    def bound(pods: Collection[Pod]) -> bool:
        found = [one for one in pods if one.metadata.name.startswith(prefix)]
        return decided(found) and sum(1 for one in found if one.spec.node_name) == count

    await team.pods(bound, f"{count} of the pods {prefix}* are bound")


async def held(team: Namespace, cpus: int) -> None:
    """Return when a reservation pod holds so many CPUs."""

    def holds(pods: Mapping[Any, Pod]) -> bool:
        nominated = [one for one in pods.values() if one.status.nominated_node_name == "node-0"]
        amounts = [one.spec.containers[0].resources.requests.get("cpu") for one in nominated]
        return amounts == ([str(cpus)] if cpus else [])

    await until(team.client, PODS, holds, f"{cpus} CPUs are held", namespace=HOME)


def refused_for_slots(pod: Pod) -> bool:
    """The scheduler says that the node has as many pods as it takes."""
    return any("Too many pods" in condition.message for condition in pod.status.conditions)


def restart_scheduler(cluster: Cluster) -> None:
    cluster.component("kube-scheduler").kill()
    cluster.component("kube-scheduler").start()


@pytest.mark.parametrize(("hold", "shareable"), [("Nominated", False), ("Nominated", True), ("Ledger", False)])
async def test_reservation_pods_keep_ordinary_pods_out_over_a_restart_of_the_scheduler(
    cluster: Cluster, reservation_pods: None, team: Namespace, parley: Parley, hold: Hold, shareable: bool
) -> None:
    """Thirty pods without claims and thirty with one of their own want the node; without reservation pods those
    without claims take what is reserved. The scheduler lets pods into an allocated shared claim by itself."""
    await begin(team, parley, hold, shareable=shareable, cpu="24")
    await held(team, 24 if hold == "Nominated" else 0)
    await team.create(*(ordinary(f"ordinary-{i}") for i in range(30)))
    await there(team, "ordinary-", CPUS - 24 if hold == "Nominated" else 30)
    for i in range(30):
        await team.create(claim(f"other-{i}", "builds", size="1Mi"), task(f"other-{i}", f"other-{i}", 1))
    for i in range(30):
        assert "too little cpu left" in await team.waits(f"other-{i}", reasons.NO_CANDIDATES)

    restart_scheduler(cluster)
    await team.create(ordinary("after-restart"))
    await there(team, "after-restart", 0 if hold == "Nominated" else 1)

    await team.create(task("late", "build", 24))
    if hold == "Nominated":
        assert (await team.bound("late")).spec.node_name == "node-0"
        await there(team, "ordinary-", CPUS - 24)
        await held(team, 0)
        await team.finish("late")
        await held(team, 24)
    else:
        assert "too little cpu left" in await team.waits("late", reasons.CLAIM_STRANDED)


@pytest.mark.parametrize("hold", ["Nominated", "Ledger"])
async def test_others_use_the_room_while_no_user_does_and_only_those_to_whom_it_yields(
    reservation_pods: None, team: Namespace, parley: Parley, hold: Hold
) -> None:
    """A user that comes meanwhile waits until they have ended, and no further one comes before it."""
    await begin(team, parley, hold, yields_to=["night"], cpu="24")
    await team.create(resource_class("night", Directories.name, parameters={}))
    for name in ("beside", "kept-out"):
        await team.create(claim(name, "builds", size="1Mi"), task(name, name, 8))
        if name == "beside":
            assert (await team.bound(name)).spec.node_name == "node-0"
    await team.waits("kept-out", reasons.NO_CANDIDATES)

    await held(team, 24 if hold == "Nominated" else 0)
    for name in ("borrower-0", "borrower-1"):
        await team.create(claim(name, "night", size="1Mi"), task(name, name, 8))
        assert (await team.bound(name)).spec.node_name == "node-0"
    await held(team, 8 if hold == "Nominated" else 0)

    await team.create(task("late", "build", 24))
    told = await team.waits("late", reasons.CLAIM_STRANDED)
    whose = f"of what is reserved for claim {team.name}/build, pods of class night, to which it yields, use 16 cpu"
    assert f"too little cpu left: {whose}" in told
    await team.create(claim("borrower-2", "night", size="1Mi"), task("borrower-2", "borrower-2", 8))
    told = await team.waits("borrower-2", reasons.NO_CANDIDATES)
    assert f"8 cpu are reserved for claim {team.name}/build" in told

    await parley.kill()
    await parley.start()
    await team.finish("borrower-0")
    await held(team, 16 if hold == "Nominated" else 0)
    await team.waits("borrower-2", reasons.NO_CANDIDATES)
    await team.finish("borrower-1")
    assert (await team.bound("late")).spec.node_name == "node-0"
    await team.finish("late")
    assert (await team.bound("borrower-2")).spec.node_name == "node-0"
    await team.waits("kept-out", reasons.NO_CANDIDATES)


async def test_the_controllers_account_makes_no_other_pods(
    cluster: Cluster, controller_account: Path, reservation_pods: None
) -> None:
    """Or it could run as any account of its namespace."""
    async with patient(controller_account) as account:
        with pytest.raises(Forbidden, match="only pods with the scheduling gate"):
            await account.create(PODS, PLAIN, HOME)
        with pytest.raises(Forbidden):
            await account.create(PODS, PLAIN, "default")
        gates = [{"name": "parley.dev/reservation"}]
        await account.create(PODS, {**PLAIN, "spec": {**CONTAINERS, "schedulingGates": gates}}, HOME)
        with pytest.raises(Forbidden):
            await account.patch(PODS, "mine", {"spec": {"schedulingGates": []}}, HOME)
        await account.delete(PODS, "mine", HOME)


def excluding(*operators: str) -> Manifest:
    """A term by which a node has the label and has it not, if both operators are given."""
    found = [{"key": "parley.dev/reservation", "operator": one} for one in operators]
    return {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}],
        "matchExpressions": found,
    }


def affine(*terms: Manifest, **spec: str) -> Manifest:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    return {**PLAIN, "spec": {**CONTAINERS, "affinity": {"nodeAffinity": required}, **spec}}


async def test_the_controllers_account_makes_pods_without_a_gate_only_if_no_node_can_run_them(
    controller_account: Path, reservation_pods: None
) -> None:
    never = excluding("Exists", "DoesNotExist")
    others = (
        affine(excluding("Exists")),
        affine(excluding("DoesNotExist")),
        affine(never, excluding()),
        affine(never, nodeName="node-0"),
    )
    async with patient(controller_account) as account:
        for other in others:
            with pytest.raises(Forbidden, match="or that no node can run"):
                await account.create(PODS, other, HOME)
        await account.create(PODS, affine(never, schedulerName="nobody"), HOME)
        await account.delete(PODS, "mine", HOME)


async def test_a_scheduler_with_the_controllers_account_preempts_and_makes_no_pods(
    admin: Client, controller_account: Path, beside_a_scheduler: None
) -> None:
    unscheduled = {**PLAIN, "spec": {**CONTAINERS, "schedulerName": "nobody"}}
    async with patient(controller_account) as account:
        for namespace in ("default", HOME):
            await admin.create(PODS, unscheduled, namespace)
            await account.delete(PODS, "mine", namespace)
        with pytest.raises(Forbidden, match="can create only pods with the scheduling gate"):
            await account.create(PODS, PLAIN, HOME)


@pytest.fixture
def above_others(cluster: Cluster) -> Iterator[str]:
    """A PriorityClass above the pods that name none, which preempts nobody."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "pipelines"}}
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump({**kind, "value": 1, "preemptionPolicy": "Never"}))
    yield "pipelines"
    cluster.kubectl("delete", "priorityclass", "pipelines")


async def thirty_of_each(team: Namespace, bound: int) -> None:
    """Pods without claims, of which so many get a slot, and then pods with a claim each, which get none."""
    await team.create(*(ordinary(f"ordinary-{i}") for i in range(30)))
    await there(team, "ordinary-", bound)
    for i in range(30):
        await team.create(claim(f"other-{i}", "builds", size="1Mi"), task(f"other-{i}", f"other-{i}", 1))
    for i in range(30):
        assert "no pod slots left" in await team.waits(f"other-{i}", reasons.NO_CANDIDATES)


async def test_reservation_pods_hold_pod_slots_too_and_users_of_a_higher_priority_pass(
    cluster: Cluster, reservation_pods: None, above_others: str, team: Namespace, parley: Parley
) -> None:
    """One each; kube-scheduler then says that there are too many pods."""
    await begin(team, parley, "Nominated", shareable=True, pods=SLOTS - 1)

    def all_nominated(pods: Mapping[Any, Pod]) -> bool:
        return len(pods) == SLOTS - 1 and all(one.status.nominated_node_name for one in pods.values())

    await until(team.client, PODS, all_nominated, "every slot is held", namespace=HOME)
    await thirty_of_each(team, bound=1)
    restart_scheduler(cluster)
    await team.create(ordinary("kept-out"))
    await team.pod("kept-out", refused_for_slots, "is kept out")
    await team.create(*(late(f"late-{i}", above_others) for i in range(5)))
    for i in range(5):
        assert (await team.bound(f"late-{i}")).spec.node_name == "node-0"
    assert not (await team.client.get(PODS, "kept-out", team.name)).spec.node_name


async def test_with_ledger_ordinary_pods_take_the_pod_slots(team: Namespace, parley: Parley) -> None:
    await begin(team, parley, pods=SLOTS - 1)
    await thirty_of_each(team, bound=30)
    await team.create(*(ordinary(f"rest-{i}", "1m") for i in range(SLOTS - 30)))
    await there(team, "rest-", SLOTS - 30)
    await team.create(task("late", "build", 1))
    assert "no pod slots left" in await team.waits("late", reasons.CLAIM_STRANDED)
