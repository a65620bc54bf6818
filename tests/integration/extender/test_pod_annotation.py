"""Of a pod the controller changes the one annotation that makes a scheduler look again, with its own account."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.namespace import Namespace
from tests.cluster.patience import patient

from parley.api.resources import PODS
from parley.kube.client import Client, Forbidden
from parley.kube.clock import utc
from parley.scheduler.extender.posting import LOOK_AGAIN, Posting
from parley.sdk import PodReference
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}


@pytest.fixture
async def account(cluster: Cluster, controller_account: Path) -> AsyncIterator[Client]:
    async with patient(controller_account) as client:
        yield client


@pytest.fixture
async def pod(admin: Client, team: Namespace) -> PodReference:
    """A pod that no scheduler looks at."""
    metadata = {"name": "pod", "labels": {"app": "a"}, "annotations": {"kept": "1"}}
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}
    made = await admin.create(PODS, {"metadata": metadata, "spec": spec}, team.name)
    return PodReference(team.name, "pod", made.metadata.uid)


async def test_the_annotation_is_written_again_and_again(
    admin: Client, account: Client, pod: PodReference
) -> None:
    posting = Posting(account, utc)
    written = []
    for _ in range(2):
        await posting.touch(pod)
        live = await admin.get(PODS, pod.name, pod.namespace)
        written.append(live.metadata.annotations[LOOK_AGAIN])
    assert written[0] != written[1]

    await account.patch(PODS, pod.name, {"metadata": {"annotations": {LOOK_AGAIN: None}}}, pod.namespace)


async def test_the_annotation_is_written_beside_very_many(
    admin: Client, account: Client, pod: PodReference
) -> None:
    """What a policy may cost is limited by the API server, and a write that would cost more is refused."""
    many = {f"{number:x}": "" for number in range(50_000)} | {"zzz": "1"}
    await admin.patch(PODS, pod.name, {"metadata": {"annotations": many}}, pod.namespace)

    for value in ("now", "later", None):
        await account.patch(PODS, pod.name, {"metadata": {"annotations": {LOOK_AGAIN: value}}}, pod.namespace)
    with pytest.raises(Forbidden, match="and nothing else"):
        await account.patch(
            PODS, pod.name, {"metadata": {"annotations": {LOOK_AGAIN: "now", "zzz": None}}}, pod.namespace
        )


@pytest.mark.parametrize(
    "body",
    [
        {"spec": {"containers": [{"name": "main", "image": "hostile"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"metadata": {"labels": {"app": "b"}}},
        {"metadata": {"labels": {"more": ""}}},
        {"metadata": {"annotations": {"kept": "2"}}},
        {"metadata": {"annotations": {"kept": None}}},
        {"metadata": {"annotations": {LOOK_AGAIN: "now", "more": ""}}},
        {"metadata": {"finalizers": ["example.com/stay"]}},
        {"metadata": {"ownerReferences": [OWNER]}},
    ],
    ids=str,
)
async def test_nothing_else_of_a_pod_is_the_controllers_to_change(
    account: Client, pod: PodReference, body: dict[str, Any]
) -> None:
    with pytest.raises(Forbidden) as refused:
        await account.patch(PODS, pod.name, body, pod.namespace)

    assert (
        f"Pod {pod.namespace}/pod: system:serviceaccount:parley-system:parley-controller can change the "
        "annotation parley.dev/look-again, and nothing else: leave the rest as it is." in str(refused.value)
    )


async def test_whoever_may_update_pods_is_not_held(admin: Client, pod: PodReference) -> None:
    body = {"spec": {"containers": [{"name": "main", "image": "other"}]}, "metadata": {"labels": {"app": "b"}}}

    changed = await admin.patch(PODS, pod.name, body, pod.namespace)

    assert changed.metadata.labels == {"app": "b"}
