"""A run of Tekton's from its annotation to the end of its claim: bridge, claim on demand, scheduler."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.bridge import OPTED_IN, bridge, tekton_pods
from tests.cluster.manifests import resource_class
from tests.cluster.namespace import NAMESPACES, Namespace
from tests.integration.native.conftest import Devices

from parley.api.resources import CLAIMS, Resource
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

PIPELINE_RUNS = Resource("tekton.dev", "v1", "pipelineruns", "PipelineRun", True, dict[str, Any])
KIND = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pipelineruns.tekton.dev}
spec:
  group: tekton.dev
  scope: Namespaced
  names: {kind: PipelineRun, plural: pipelineruns}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
TEMPLATE = """
apiVersion: parley.dev/v1alpha1
kind: ResourceClaimTemplate
metadata: {name: src}
spec:
  spec: {resourceClassName: CLASS}
  sharedBy:
    podLabel: tekton.dev/pipelineRunUID
    owner:
      apiVersion: tekton.dev/v1
      kind: PipelineRun
      nameLabel: tekton.dev/pipelineRun
      uidLabel: tekton.dev/pipelineRunUID
"""


@pytest.fixture
def tekton(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with Tekton's kind of runs, but without its controller."""
    cluster.kubectl("apply", "-f", "-", stdin=KIND)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/pipelineruns.tekton.dev")
    cluster.kubectl("get", "pipelineruns.tekton.dev", "--all-namespaces")
    yield cluster
    cluster.kubectl("delete", "-f", "-", stdin=KIND)


@pytest.fixture
async def runs(tekton: Cluster, team: Namespace, devices: Devices) -> AsyncIterator[Namespace]:
    """A namespace that has opted in, with a template for each run's claim."""
    await devices(node_0=1, node_1=1)
    await team.client.patch(NAMESPACES, team.name, {"metadata": {"labels": OPTED_IN}})
    class_name = f"{team.name}-shared"
    await team.create(resource_class(class_name, shareable=True))
    await team.create(yaml.safe_load(TEMPLATE.replace("CLASS", class_name)))
    with bridge(tekton, team.name):
        yield team


async def a_task(team: Namespace, name: str, run: str, uid: str) -> None:
    """A pod of the run, as Tekton's controller would make it."""
    pod, _ = tekton_pods()
    labels = {**pod["metadata"]["labels"], "tekton.dev/pipelineRun": run, "tekton.dev/pipelineRunUID": uid}
    meta = {"name": name, "labels": labels, "annotations": pod["metadata"]["annotations"]}
    await team.create({**pod, "metadata": meta})


async def test_the_tasks_of_a_run_meet_on_one_node_with_nothing_but_an_annotation(runs: Namespace) -> None:
    body = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "build-1"}}
    uid = (await runs.client.create(PIPELINE_RUNS, body, runs.name))["metadata"]["uid"]
    tasks = ("clone", "build", "test")
    for task in tasks:
        await a_task(runs, task, "build-1", uid)

    assert len({(await runs.bound(task)).spec.node_name for task in tasks}) == 1
    (claim,) = (await runs.client.list(CLAIMS, runs.name)).items
    assert claim.metadata.name == f"src-{uid}"
    # the scheduler lets in who finds the claim allocated: Parley records that afterwards
    await runs.parley_claim(
        f"src-{uid}", lambda c: {u.name for u in c.status.reserved_for} == set(tasks), "is reserved for all tasks"
    )

    for task in tasks:
        await runs.finish(task)
    await runs.client.delete(PIPELINE_RUNS, "build-1", runs.name)
    await runs.gone(CLAIMS, claim.metadata.name)
