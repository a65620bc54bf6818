"""An administrator of one namespace who has every verb there, the custom verbs of drivers too, is a user all the
same: these verbs count only if they are granted in all namespaces."""

from collections.abc import AsyncIterator

import pytest
from tests.cluster.patience import patient
from tests.integration.api.isolation.conftest import ALLOCATED, CLASS, DISKS, MARKS, Body, Question, kind

from parley.api.resources import CLAIMS, POD_SCHEDULINGS
from parley.kube.client import Client, Forbidden
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

SPEC = {"resourceClassName": CLASS[DISKS]}


@pytest.fixture
async def administrator(cluster: Cluster, namespace: str) -> AsyncIterator[Client]:
    """The API server as an account sees it that is bound to cluster-admin in the namespace."""
    cluster.kubectl("create", "serviceaccount", "boss", "-n", namespace)
    subject = f"--serviceaccount={namespace}:boss"
    cluster.kubectl("create", "rolebinding", "boss", "--clusterrole=cluster-admin", subject, "-n", namespace)
    async with patient(cluster.kubeconfig_for_service_account(namespace, "boss")) as client:
        yield client


async def test_it_labels_and_annotates_its_claims(administrator: Client, namespace: str) -> None:
    await administrator.create(CLAIMS, {"metadata": {"name": "one"}, "spec": SPEC}, namespace)

    marked: Body = {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.com/mine"]}
    await administrator.patch(CLAIMS, "one", {"metadata": marked}, namespace)
    applied = {**kind(CLAIMS), "metadata": {"labels": {"a": "c"}}, "spec": SPEC}
    claim = await administrator.apply(CLAIMS, "one", applied, namespace, field_manager="kubectl", force=True)

    assert claim.metadata.labels["a"] == "c"


@pytest.mark.parametrize("driver", [DISKS, "device.parley.dev"])
async def test_it_records_no_allocation_of_a_driver(administrator: Client, namespace: str, driver: str) -> None:
    """What is recorded reaches the driver's node plugins."""
    await administrator.create(CLAIMS, {"metadata": {"name": "one"}, "spec": SPEC}, namespace)
    forged = {"driverName": driver, "allocation": {"handles": [{"driverName": driver, "data": {"a": "b"}}]}}

    # the API server names one of the two policies that deny it
    words = "cannot write the status of a claim that driver|cannot allocate it for another driver"
    with pytest.raises(Forbidden, match=words):
        await administrator.patch(CLAIMS, "one", {"status": forged}, namespace, subresource="status")
    for mark, value in MARKS.items():
        with pytest.raises(Forbidden, match="denied request"):
            await administrator.patch(CLAIMS, "one", {"metadata": {mark: value}}, namespace)


async def test_it_answers_for_no_driver(administrator: Client, question: Question) -> None:
    asker = Question(administrator, question.namespace, question.uid)

    with pytest.raises(Forbidden, match="cannot write or remove entries of driver"):
        await asker.apply({"name": "disk", "driverName": DISKS, "round": 1, "viableNodes": ["n1"]})
    with pytest.raises(Forbidden, match="leave out spec and the rest of status"):
        await administrator.patch(POD_SCHEDULINGS, "pod", {"spec": {"selectedNode": "n1"}}, question.namespace)


async def test_it_asks_no_driver(administrator: Client, namespace: str) -> None:
    """The driver would allocate for a pod that does not exist, and limits would not count it."""
    await administrator.create(CLAIMS, {"metadata": {"name": "one"}, "spec": SPEC}, namespace)
    asked = [{"name": "disk", "driverName": DISKS, "resourceClaimName": "one"}]
    body: Body = {
        **kind(POD_SCHEDULINGS),
        "metadata": {"name": "pod", "labels": {"parley.dev/drivers": "standalone"}},
        "spec": {"candidateNodes": ["n1"], "selectedNode": "n1", "round": 1, "claims": asked},
    }

    with pytest.raises(Forbidden, match="boss cannot create PodSchedulings, by which drivers allocate"):
        await administrator.create(POD_SCHEDULINGS, body, namespace)
    with pytest.raises(Forbidden, match="boss cannot create PodSchedulings, by which drivers allocate"):
        await administrator.apply(POD_SCHEDULINGS, "pod", body, namespace, field_manager="x")


async def test_what_a_driver_recorded_is_not_its_to_change(
    administrator: Client, driver: Client, namespace: str
) -> None:
    await administrator.create(CLAIMS, {"metadata": {"name": "one"}, "spec": SPEC}, namespace)
    await driver.patch(CLAIMS, "one", {"status": ALLOCATED}, namespace, subresource="status")
    cleared = {"status": {"driverName": None, "allocation": None}}

    with pytest.raises(Forbidden, match="cannot write the status of a claim that driver"):
        await administrator.patch(CLAIMS, "one", cleared, namespace, subresource="status")
