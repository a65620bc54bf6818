"""deploy/Dockerfile, built by a container engine and run as the chart's pods run it: as nobody, read-only."""

import asyncio
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from tests.cluster.registry import Registry
from tests.support.pages import File, steps, take
from tests.support.pages import run as type_in
from tools import image_sbom

from parley_devcluster import engine, parley_image
from parley_devcluster.engine import Engine, EngineError

CHECKOUT = Path(__file__).parents[3]
AS_THE_CHART = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--network=none")


def run(engine: Engine, image: str, *command: str, user: str = "") -> str:
    asked = [f"--user={user}"] if user else []
    return engine.run("run", "--rm", *AS_THE_CHART, *asked, image, *command)


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (("parley", "version"), r"^\d+\.\d+\.\d+"),
        (("parley", "controller", "--help"), "Usage: parley controller"),
        (("parley-kubelet", "--help"), "usage: parley-kubelet"),
    ],
    ids=["version", "controller", "node plugin"],
)
def test_its_programs_run_as_nobody_with_a_root_that_is_read_only(
    container_engine: Engine, image: str, command: tuple[str, ...], printed: str
) -> None:
    assert re.search(printed, run(container_engine, image, *command))


def test_the_node_plugin_runs_as_root_without_capabilities(container_engine: Engine, image: str) -> None:
    assert "usage: parley-kubelet" in run(container_engine, image, "parley-kubelet", "--help", user="0:0")


LIMITED = """
import asyncio, os
from pathlib import Path
from parley_kubelet.driver import images, loops
assert images.lacking() == "", images.lacking()
folder = Path("/root/limited")
folder.mkdir()
images.make(folder, 32 * 1024**2, (1000, 2000), 0o2770)
attached = images.AttachedImages()
device = attached.attach(folder, "of-a-test")
assert attached.attach(folder, "of-a-test") == device
assert os.read(os.open(device, os.O_RDONLY), 2048)[1080:1082] == bytes([0x53, 0xEF])  # ext4's magic number
attached.detach("of-a-test")
"""


def test_sizes_can_be_enforced_by_a_plugin_that_is_privileged(container_engine: Engine, image: str) -> None:
    ask = "from parley_kubelet.driver import images; print(images.lacking())"
    as_root = ("run", "--rm", "--user=0:0")
    alone = container_engine.run(*as_root, image, "python3", "-c", ask)
    privileged = "make the plugin privileged (nodePlugin.workspaces.enforceSizes)"
    assert alone.strip() == f"loop devices can't be used: {privileged}"
    container_engine.run(*as_root, "--privileged", "--volume=/dev:/dev:ro", image, "python3", "-c", LIMITED)


def test_user_and_command_are_what_the_chart_asks_for(container_engine: Engine, image: str) -> None:
    names = (CHECKOUT / "deploy/chart/parley/templates/_names.tpl").read_text()
    user, group = (re.findall(rf"runAs{kind}: (\d+)", names)[0] for kind in ("User", "Group"))

    (inspected,) = json.loads(container_engine.run("image", "inspect", image))

    assert inspected["Config"]["User"] == f"{user}:{group}"
    assert inspected["Config"]["Cmd"] == ["parley", "controller"]


def test_what_is_imported_is_compiled(container_engine: Engine, image: str) -> None:
    """A container that can't write would compile it at each start."""
    loaded = "import sys, parley.cli.main; print(*(m.__cached__ or '' for m in list(sys.modules.values())"
    loaded += (
        " if '/opt/parley/' in (getattr(m, '__file__', None) or '') and m.__file__.endswith('.py')), sep='\\n')"
    )
    look = "import os; [print(p) for p in open(0).read().split() if not os.path.exists(p)]"

    missing = run(container_engine, image, "sh", "-c", f'python3 -c "{loaded}" | python3 -c "{look}"')

    assert missing == ""


def test_it_has_the_locked_versions_and_nothing_that_builds(container_engine: Engine, image: str) -> None:
    ask = "import importlib.metadata as m"
    ask += "; print(*(f'{d.name}=={d.version}' for d in m.distributions(path=['PATH'])))"
    folder = run(
        container_engine, image, "python3", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
    )
    locked = _locked()

    installed = run(container_engine, image, "python3", "-c", ask.replace("PATH", folder.strip())).split()

    names = {_normal(name) for name in installed if not name.startswith("parley==")}
    assert names == {_normal(name) for name in locked}


def test_its_inventory_has_every_locked_version_and_the_bases_packages(
    container_engine: Engine, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = _locked()

    assert image_sbom.main([image]) == 0

    document = json.loads(capsys.readouterr().out)
    listed = {component["purl"].partition("?")[0] for component in document["components"]}
    assert {f"pkg:pypi/{_normal(pin).replace('==', '@')}" for pin in locked} <= listed
    assert any(purl.startswith("pkg:deb/debian/libssl3@") for purl in listed)


def test_a_dependency_whose_hash_is_not_the_locked_one_is_refused(
    container_engine: Engine, image: str, tmp_path: Path
) -> None:
    for name in ("deploy", "driver", "kubelet-plugin"):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".dockerignore"):
        shutil.copy(CHECKOUT / name, tmp_path)
    lock = tmp_path / "deploy" / "requirements.lock"
    lock.write_text(re.sub(r"sha256:\w{64}", f"sha256:{'0' * 64}", lock.read_text()))

    with pytest.raises(EngineError, match="DO NOT MATCH THE HASHES"):
        parley_image.build(container_engine, tmp_path, "parley.dev/parley:forged")


def _normal(requirement: str) -> str:
    return requirement.lower().replace("_", "-")


def _locked() -> list[str]:
    return re.findall(r"(?m)^(\S+==\S+) \\$", (CHECKOUT / "deploy/requirements.lock").read_text())


@pytest.fixture
def docker(container_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which `docker` means the engine."""
    programs = tmp_path_factory.mktemp("programs")
    (programs / "docker").write_text(f'#!/bin/sh\nexec {container_engine.program} "$@"\n')
    (programs / "docker").chmod(0o755)
    return {**container_engine.environment(), "PATH": f"{programs}:{os.environ['PATH']}"}


async def test_a_drivers_image_is_made_of_it_and_pushed_as_the_tutorial_says(
    container_engine: Engine, image: str, docker: dict[str, str], plain_http: dict[str, str], tmp_path: Path
) -> None:
    if container_engine.name != engine.PODMAN:
        pytest.skip(f"{container_engine.name} can't be told where registry.example.com is, podman can")
    page = CHECKOUT / "docs" / "tutorials" / "first-driver.md"
    (base,) = re.findall(r"(?m)^FROM (\S+)$", page.read_text())
    container_engine.run("tag", image, base)
    registry = Registry()
    async with registry.serving() as address:
        own = {**plain_http, "HTTP_PROXY": f"http://{address}"}
        for step in steps(page):
            if isinstance(step, File):
                take(step, tmp_path)
            elif step.where == "With a container engine":
                await asyncio.to_thread(type_in, step, tmp_path, {**docker, **own})

    manifest = json.loads(registry.manifests["slots:1"])
    configuration = json.loads(registry.blobs[manifest["config"]["digest"]])
    assert configuration["config"]["Cmd"] == ["parley", "driver", "run", "slots:Slots"]
    assert {layer["digest"] for layer in manifest["layers"]} <= registry.blobs.keys()
    slots = ("registry.example.com/slots:1", "python3", "-c", "import slots; print(slots.Slots.name)")
    assert run(container_engine, *slots).strip() == "slots.example.com"
