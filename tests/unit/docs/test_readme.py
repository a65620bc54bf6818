"""The README's commands exist, its manifests are valid, its driver runs, its answer of `explain` is a real one."""

import asyncio
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.explain.conftest import text_of

from parley.api import models
from parley.api.resources import CLASSES, NODES, PODS, TEMPLATES
from parley.cli import logs
from parley.cli.drivers import driver_class
from parley.explain.explaining import explain
from parley.sdk import Driver
from parley.sdk.standalone import StandaloneDriver
from parley.sdk.testing import Scenario, check_driver, request
from parley.simulate import virtual_time
from parley.simulate.cluster import SimulatedCluster, loop_clock
from parley.simulate.manifests import read

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_its_make_targets_exist() -> None:
    named = set(re.findall(r"\$ make ([a-z-]+)", README))
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"demo", "test", "cluster", "cluster-down"} <= named <= targets


def test_its_files_exist() -> None:
    named = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"apply -f (\S+)", README)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("block", blocks("yaml"))
def test_its_manifests_are_valid(block: str) -> None:
    kinds = []
    for document in yaml.safe_load_all(block):
        kinds.append(document["kind"])
        if document["apiVersion"] == "parley.dev/v1alpha1":
            getattr(models, document["kind"]).model_validate(document)
    assert kinds == ["ResourceClass", "ResourceClaimTemplate", "Pod"]


@pytest.fixture
def licences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Driver[Any, Any]]:
    """The driver, found as `parley driver run licences:Licences` does: a file in the folder at hand."""
    (code,) = blocks("python")
    (tmp_path / "licences.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "licences", raising=False)
    assert "licences:Licences" in README
    return driver_class("licences:Licences")


async def test_its_driver_keeps_its_promises(licences: Callable[..., Driver[Any, Any]]) -> None:
    make = partial(licences, 3)
    wanted = (request(make(), "p", {}), request(make(), "q", {}, {}))
    await check_driver(Scenario(make, ("a", "b"), wanted))


async def apply_pods(cluster: SimulatedCluster, number: int) -> None:
    """A node, and so many pods with a licence each."""
    capacity = {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}}
    claims = [{"name": "licence", "resourceClaimTemplateName": "licence"}]
    template = {"metadata": {"name": "licence"}, "spec": {"spec": {"resourceClassName": "licences"}}}
    await cluster.controller.ready.wait()
    await cluster.client.create(NODES, {"metadata": {"name": "a"}, "status": capacity})
    await cluster.client.create(
        CLASSES, {"metadata": {"name": "licences"}, "driverName": "licences.example.com", "nodePart": "None"}
    )
    await cluster.client.create(TEMPLATES, template, "default")
    for pod in range(number):
        spec = {"containers": [{"name": "main"}], "resourceClaims": claims}
        await cluster.client.create(PODS, {"metadata": {"name": f"pod-{pod}"}, "spec": spec}, "default")


async def bound(cluster: SimulatedCluster) -> int:
    await asyncio.sleep(120)
    return len([pod for pod in cluster.recording.pods if pod.node])


def test_its_driver_runs_in_the_controller(licences: type[Driver[Any, Any]]) -> None:
    async def story() -> None:
        async with SimulatedCluster(drivers=[licences()]) as cluster:
            await apply_pods(cluster, 21)
            assert await bound(cluster) == 20

    virtual_time.run(story())


def test_its_driver_runs_by_itself(licences: type[Driver[Any, Any]]) -> None:
    async def story() -> None:
        async with SimulatedCluster(drivers=[]) as cluster:
            alone = asyncio.create_task(StandaloneDriver(cluster.client, licences(), loop_clock()).run())
            await apply_pods(cluster, 21)
            assert await bound(cluster) == 20
            alone.cancel()
            await asyncio.gather(alone, return_exceptions=True)

    virtual_time.run(story())


def test_its_answer_of_explain_is_a_real_one() -> None:
    shown = README.partition("$ parley explain pod render-3\n")[2].partition("```")[0]
    examples = [ROOT / "examples" / name for name in ("nodes.yaml", "tokens/licences.yaml")]

    async def answer() -> str:
        async with SimulatedCluster() as cluster:
            clock = loop_clock()
            await cluster.apply(read(examples))
            await asyncio.sleep(10)
            return text_of(await explain(cluster.client, clock(), "default", "render-3"))

    logs.silence()
    printed = virtual_time.run(answer())

    assert "What would help" in shown
    assert printed.startswith(shown)
