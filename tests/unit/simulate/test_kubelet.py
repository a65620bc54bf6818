"""The simulated kubelets alone: the test plays everybody else."""

from typing import Any

import pytest

from parley.api.resources import PODS
from parley.kube.client import NotFound
from parley.simulate.kubelet import RUN_SECONDS, Kubelets


def test_a_bound_pod_runs(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.pod("bound", nodeName="n1")
        await world.pod("waiting")
        await world.settle()

        assert [(await world.the_pod(name)).status.phase for name in ("bound", "waiting")] == [
            "Running",
            "Pending",
        ]

    alone(Kubelets, story)


def test_a_pod_starts_only_with_its_claims_allocated_and_reserved(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.claim("c")
        pod = await world.pod("p", ["c"], nodeName="n1")
        await world.settle()
        assert (await world.the_pod("p")).status.phase == "Pending"

        await world.allocate("c", "n1", pods=[pod])
        await world.settle()
        assert (await world.the_pod("p")).status.phase == "Running"

    alone(Kubelets, story)


def test_a_pod_whose_claim_has_no_object_yet_does_not_start(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.pod("p", template="t", nodeName="n1")
        await world.settle()
        assert (await world.the_pod("p")).status.phase == "Pending"

    alone(Kubelets, story)


def test_a_pod_runs_as_long_as_its_annotation_says(alone: Any) -> None:
    async def story(world: Any) -> None:
        body = {"metadata": {"name": "p", "annotations": {RUN_SECONDS: "45"}}, "spec": {"nodeName": "n1"}}
        await world.client.create(PODS, body, "team")
        await world.settle()
        assert (await world.the_pod("p")).status.phase == "Running"
        await world.settle()
        assert (await world.the_pod("p")).status.phase == "Succeeded"

    alone(Kubelets, story)


def test_an_annotation_that_is_no_number_is_none(alone: Any) -> None:
    async def story(world: Any) -> None:
        body = {"metadata": {"name": "p", "annotations": {RUN_SECONDS: "soon"}}, "spec": {"nodeName": "n1"}}
        await world.client.create(PODS, body, "team")
        await world.settle()
        assert (await world.the_pod("p")).status.phase == "Running"

    alone(Kubelets, story)


def test_a_deleted_pod_goes(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.pod("p", nodeName="n1")
        await world.settle()
        await world.client.delete(PODS, "p", "team")
        await world.settle()
        with pytest.raises(NotFound):
            await world.the_pod("p")

    alone(Kubelets, story)
