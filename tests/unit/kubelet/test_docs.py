"""The page about node drivers: its options, its code and its files are those of the program."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from examples.scratch.scratch_node import Place, ScratchNode
from pydantic import BaseModel
from tests.support.shell import PROGRAMS, path, tried
from tests.support.shown import blocks as shell_blocks

from parley_kubelet import edits, hooks
from parley_kubelet.cdi import containerd
from parley_kubelet.configuration import Configuration
from parley_kubelet.findings import NodeDiagnosis
from parley_kubelet.settings import parse_arguments
from parley_kubelet.testing import NodeScenario, check_node_driver, node_claim

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "node-driver.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def test_its_table_has_every_option_with_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--help"], {})
    without_variable = {"--help", "--version", "--output", "--no-headers"}
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {*without_variable, "--node-name"}
    told = dict(re.findall(r"^\| `(--[a-z-]+)` \| `([A-Z_]+)`", PAGE, flags=re.MULTILINE))
    assert set(told) == options | {"--node-name"}
    assert all(variable == option[2:].upper().replace("-", "_") for option, variable in told.items())


async def test_its_class_and_its_test_work(tmp_path: Path) -> None:
    scope: dict[str, Any] = {**vars(hooks), **vars(edits), "BaseModel": BaseModel, "Path": Path, "shutil": shutil}
    scope |= {"NodeScenario": NodeScenario, "check_node_driver": check_node_driver, "node_claim": node_claim}
    class_, test = blocks(PAGE, "python")
    exec(class_, scope)
    exec(test, scope)
    await scope["test_it_keeps_its_promises"](tmp_path)


def test_its_links_lead_somewhere() -> None:
    for page in (PAGE, (DOCS / "device-driver.md").read_text(), (DOCS / "install.md").read_text()):
        named = re.findall(r"\]\(([^)#]+)\)", page)
        assert [name for name in named if not (DOCS / name).exists()] == []


def test_the_devices_of_the_page_about_the_device_driver_are_valid() -> None:
    (block,) = blocks((DOCS / "device-driver.md").read_text(), "yaml")
    named, by_glob = Configuration.model_validate(yaml.safe_load(block)).devices
    assert named.check is not None
    assert (named.name, by_glob.model) == ("gpu-0", "nvme")


def test_the_configurations_of_the_page_about_installing_are_valid() -> None:
    found = blocks((DOCS / "install.md").read_text(), "yaml")
    values = [yaml.safe_load(block) for block in found if block.startswith("# values.yaml")]
    devices, with_hooks = (pool["configuration"] for one in values for pool in one["nodePlugin"]["pools"])
    (in_a_file,) = (yaml.safe_load(block) for block in found if block.startswith("# devices.yaml"))

    assert [entry.model for entry in Configuration.model_validate(devices).devices] == ["fuse"]
    settings = Configuration.model_validate(with_hooks).drivers
    assert Place.model_validate(settings[ScratchNode.name]) == Place(size_mib=2048)
    assert in_a_file == with_hooks


def test_it_shows_what_the_doctor_prints(tmp_path: Path) -> None:
    (shown,) = [lines for lines in shell_blocks(PAGE) if lines[0].startswith("ok ")]
    file = tmp_path / "config.toml"
    file.write_text("version = 2\n")

    found, remedy = next(containerd.look("containerd://1.7.2", file, Path("/var/run/cdi")))

    runtime = NodeDiagnosis("container runtime", found.replace(str(file), "/etc/containerd/config.toml"), remedy)
    assert shown == [str(NodeDiagnosis("plugins-dir", "/var/lib/kubelet/plugins")), "...", str(runtime)]


PAGES_WITH_A_NODE_PART = (DOCS / "node-driver.md", DOCS / "tutorials" / "node-part.md")


@pytest.mark.parametrize("page", PAGES_WITH_A_NODE_PART, ids=lambda page: page.stem)
def test_the_command_that_runs_a_node_part_finds_its_class(page: Path, tmp_path: Path) -> None:
    (command,) = re.findall(r"(?m)^\$ (.*parley-kubelet .*)$", page.read_text())
    for name in ("scratch_node.py", "node.yaml"):
        shutil.copy(DOCS.parent / "examples" / "scratch" / name, tmp_path)

    done = tried(f"{command} doctor", tmp_path, {"PATH": path(PROGRAMS)})

    assert "driver: scratch.example.com (ScratchNode)" in done.stdout, done.stdout + done.stderr
