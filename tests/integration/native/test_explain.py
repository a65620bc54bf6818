"""`parley explain` at a real control plane: a pod that is bound, one that waits, one whose driver is silent."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from tests.cluster.manifests import pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.integration.native.conftest import Devices, was_refused
from typer.testing import CliRunner

from parley.api import reasons
from parley.cli.main import plugin
from parley.explain.explaining import explain
from parley.explain.model import Explanation, wire
from parley.kube.clock import utc
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster


async def explained(team: Namespace, name: str) -> Explanation:
    return await explain(team.client, utc(), team.name, name)


async def test_a_bound_pod(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1, node_1=2)
    await team.create(template("two", count=2), pod("runs", templates={"gpu": "two"}))
    await team.bound("runs")
    await team.scheduling("runs", lambda s: s.spec.selected_node == "node-1", "is told")

    told = await explained(team, "runs")

    assert (told.state, told.node, told.code) == ("bound", "node-1", "")
    (claim,) = told.claims
    assert (claim.state, claim.holds, claim.driver) == (
        "allocated",
        ("node-1/gpu-0", "node-1/gpu-1"),
        "device.parley.dev",
    )
    assert told.since
    assert claim.since
    assert {row.node: (row.verdict, row.claims[0].why) for row in told.nodes} == {
        "node-0": ("notViable", "1 of 1 device free, 2 wanted"),
        "node-1": ("selected", ""),
    }


async def test_a_waiting_pod_and_the_one_it_waits_for(team: Namespace, devices: Devices) -> None:
    await devices(node_1=1)
    await team.create(template("one"), pod("runs", templates={"gpu": "one"}))
    await team.bound("runs")
    await team.create(pod("wants", templates={"gpu": "one"}))
    await team.waits("wants", reasons.NOTHING_VIABLE)
    await was_refused(team, "wants")

    told = await explained(team, "wants")

    assert (told.state, told.code) == ("waits", reasons.NOTHING_VIABLE)
    assert (told.remedies[0].pods, told.remedies[0].nodes) == ((f"{team.name}/runs",), ("node-1",))
    assert "scheduler" in {finding.by for finding in told.findings}
    assert {row.node: row.verdict for row in told.nodes}["node-1"] == "notViable"


async def test_a_driver_that_does_not_answer(team: Namespace) -> None:
    await team.create(resource_class("disk", "disk.example.com"), template("disk", "disk"))
    await team.create(pod("wants", templates={"data": "disk"}))
    await team.waits("wants", reasons.WAITING_FOR_DRIVERS)

    told = await explained(team, "wants")

    silent = next(finding for finding in told.findings if finding.by == "driver disk.example.com")
    assert silent.text.startswith("has not answered about claim data for ")
    assert silent.at
    assert {cell.why for row in told.nodes for cell in row.claims} == {"not answered"}


async def test_the_command_tells_the_same(team: Namespace, devices: Devices, cluster: Cluster) -> None:
    await devices(node_1=1)
    await team.create(template("two", count=2), pod("wants", templates={"gpu": "two"}))
    await team.waits("wants", reasons.NOTHING_VIABLE)
    await was_refused(team, "wants")
    told: Mapping[str, Any] = wire(await explained(team, "wants"))

    result = await _run(
        "explain", "pod", "wants", "-n", team.name, "-o", "json", "--kubeconfig", cluster.kubeconfig
    )

    (pod_,) = orjson.loads(result)["items"]
    assert {**pod_, "now": ""} == {**told, "now": ""}


async def _run(*arguments: object) -> bytes:
    result = await asyncio.to_thread(CliRunner().invoke, plugin, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes
