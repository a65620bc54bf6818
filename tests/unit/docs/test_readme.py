"""The README's commands exist, its manifests are valid, its driver keeps the promises of a driver."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from parley.api import models
from parley.sdk.testing import Scenario, check_driver, request

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


async def test_its_driver_keeps_its_promises() -> None:
    (code,) = blocks("python")
    scope: dict[str, Any] = {}
    exec(code, scope)
    make = partial(scope["Licences"], 3)
    wanted = (request(make(), "p", {}), request(make(), "q", {}, {}))
    await check_driver(Scenario(make, ("a", "b"), wanted))
