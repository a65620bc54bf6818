"""What `parley-kubelet doctor` says of a node, and what it says is to be mended."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from parley.api.resources import NODES
from parley.kube.client import Call, Client, Forbidden
from parley.kube.credentials import NoConfiguration
from parley.kube.memory import MemoryServer
from parley_kubelet.cdi import containerd, crio
from parley_kubelet.doctor import diagnose
from parley_kubelet.findings import NodeDiagnosis, shown
from parley_kubelet.serving.sockets import serving
from parley_kubelet.settings import PluginSettings
from parley_kubelet.state.checkpoint import Checkpoint, CheckpointEntry, HeldDevice
from parley_kubelet.state.durable import Folder

VERSIONS = {"kubeletVersion": "v1.37.0", "containerRuntimeVersion": "containerd://2.4.2"}
DRIVER = "device.parley.dev"


@pytest.fixture
def settings(folder: Path) -> PluginSettings:
    for name in ("plugins", "registry", "cdi"):
        (folder / name).mkdir()
    (folder / "devices.yaml").write_text("devices: [{name: gpu-0, model: a100}]")
    (folder / "containerd.toml").write_text(
        f"version = 3\n[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = ['{folder}/cdi']\n"
    )
    return PluginSettings(
        node="n1",
        config=folder / "devices.yaml",
        plugins=folder / "plugins",
        registry=folder / "registry",
        cdi=folder / "cdi",
        containerd=folder / "containerd.toml",
    )


@pytest.fixture(autouse=True)
async def node(client: Client) -> None:
    body = {"metadata": {"name": "n1"}, "status": {"nodeInfo": VERSIONS}}
    await client.create(NODES, body)
    await client.patch(NODES, "n1", {"status": {"nodeInfo": VERSIONS}}, subresource="status")


async def findings(settings: PluginSettings, client: Client) -> list[str]:
    @asynccontextmanager
    async def connect(_: PluginSettings) -> AsyncIterator[Client]:
        yield client

    return [str(finding) for finding in await diagnose(settings, connect)]


async def to_mend(settings: PluginSettings, client: Client) -> list[str]:
    return [line for line in await findings(settings, client) if not line.startswith("ok ")]


def entry(**fields: Any) -> CheckpointEntry:
    whole: dict[str, Any] = {
        "uid": "u1",
        "namespace": "team",
        "name": "a",
        "phase": "prepared",
        "boot": "b1",
        "results": (),
        "devices": (HeldDevice(pool="n1", name="gpu-0"),),
        "handle": {},
    }
    return CheckpointEntry.of(**{**whole, **fields})


async def test_a_node_where_all_is_well(settings: PluginSettings, client: Client, folder: Path) -> None:
    assert await findings(settings, client) == [
        f"ok    plugins-dir: {folder}/plugins",
        f"ok    plugins-registry-dir: {folder}/registry",
        f"ok    cdi-dir: {folder}/cdi",
        f"ok    driver: {DRIVER} (DeviceNodeDriver)",
        f"ok    socket: {DRIVER} is served at no socket now",
        f"ok    checkpoint: {folder}/plugins/{DRIVER}/checkpoint.json: none yet, nothing is prepared",
        f"ok    CDI: 0 files of {DRIVER} in {folder}/cdi",
        "ok    API server: knows node n1, and slices and releases may be read",
        "ok    kubelet: version v1.37.0",
        f"ok    container runtime: containerd://2.4.2 reads CDI files in {folder}/cdi",
    ]


async def test_folders_that_are_not_there(settings: PluginSettings, client: Client, folder: Path) -> None:
    mended = await to_mend(replace(settings, registry=folder / "none"), client)
    assert mended == [
        f"fix   plugins-registry-dir: {folder}/none is not a folder: mount the kubelet's folder there, or correct"
        " --plugins-registry-dir"
    ]


async def test_a_configuration_that_cannot_be_used(settings: PluginSettings, client: Client, folder: Path) -> None:
    settings.config.write_text("devices: [{name: gpu-0}]")
    assert await to_mend(settings, client) == [
        f"fix   configuration: {folder}/devices.yaml: devices[0].model is missing: add it: the drivers can't"
        " be checked before that"
    ]


async def test_a_device_that_is_missing(settings: PluginSettings, client: Client) -> None:
    settings.config.write_text("devices: [{name: gpu-0, model: a, deviceNodes: [/dev/no-such-gpu]}]")
    assert await to_mend(settings, client) == [
        "fix   device: gpu-0: /dev/no-such-gpu is not a device node: bring it back, or take it out of the file"
    ]


async def test_a_checkpoint_that_is_damaged_and_one_with_unfinished_claims(
    settings: PluginSettings, client: Client, folder: Path
) -> None:
    state = Folder(settings.plugins / DRIVER)
    state.write("checkpoint.json", b"{")
    (damaged,) = await to_mend(settings, client)
    assert damaged.startswith(
        f"fix   checkpoint: checkpoint {state.path}/checkpoint.json is damaged, it is not JSON"
    )
    Checkpoint(state, "n1").write({"u1": entry(phase="unpreparing")})
    assert await to_mend(settings, client) == [
        f"fix   checkpoint: {state.path}/checkpoint.json: team/a only half prepared or unprepared: see the"
        " plugin's log for the driver's error; the kubelet tries again"
    ]


async def test_cdi_files_that_belong_to_nothing_or_that_the_runtime_refuses(
    settings: PluginSettings, client: Client
) -> None:
    Checkpoint(Folder(settings.plugins / DRIVER), "n1").write({"u1": entry()})
    orphan, torn = (settings.cdi / f"parley.dev-{DRIVER}-claim-{uid}.json" for uid in ("u0", "u1"))
    device = {"name": "u0", "containerEdits": {"env": ["A=b"]}}
    content = {"cdiVersion": "0.6.0", "kind": "a.b/claim", "devices": [device]}
    orphan.write_bytes(orjson.dumps(content))
    torn.write_text("{}")
    mended = await to_mend(settings, client)
    assert mended[0] == (
        f"fix   CDI: {orphan} does not belong to a prepared claim: restart the plugin: it removes the file"
    )
    assert f"fix   CDI: {torn}: devices: is empty: restart the plugin: it writes the file again" in mended


async def test_sockets(settings: PluginSettings, client: Client) -> None:
    path = settings.registry / f"{DRIVER}-reg.sock"
    async with serving(path, lambda _: None, grace=0):
        assert f"ok    socket: {DRIVER} is served at {path}" in await findings(settings, client)
    path.touch()
    assert await to_mend(settings, client) == [
        f"fix   socket: {path} is left from a plugin that was killed: start the plugin, or remove it"
    ]


class Refusing(Client):
    async def request(self, call: Call) -> bytes:
        raise Forbidden(403, "Forbidden", "not yours")


async def test_an_api_server_that_refuses(settings: PluginSettings, server: MemoryServer) -> None:
    assert await to_mend(settings, Refusing(server.client())) == [
        "fix   API server: not yours: correct --kubeconfig and --node-name, or apply deploy/base again"
    ]


async def test_no_way_to_an_api_server(settings: PluginSettings) -> None:
    def connect(_: PluginSettings) -> AbstractAsyncContextManager[Client]:
        raise NoConfiguration("no kubeconfig")

    assert "no kubeconfig" in str((await diagnose(settings, connect))[-1])


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("v1.33.4", "fix   kubelet: version v1.33.4: update it to 1.34 or later: it does not know DRA v1"),
        ("", "fix   kubelet: version '' is not known: wait until the node has reported itself"),
    ],
)
async def test_versions_of_the_kubelet(settings: PluginSettings, client: Client, version: str, line: str) -> None:
    status = {"status": {"nodeInfo": {**VERSIONS, "kubeletVersion": version}}}
    await client.patch(NODES, "n1", status, subresource="status")
    assert await to_mend(settings, client) == [line]


OLD = "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\n"
NEW = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n"


@pytest.mark.parametrize(
    ("version", "text", "found", "remedy"),
    [
        (
            "docker://29.1.0",
            "",
            "docker://29.1.0: not containerd, make sure that it reads CDI files in /var/run/cdi",
            "",
        ),
        ("containerd://1.6.9", "", "containerd://1.6.9", "update it to 1.7 or later: it does not know CDI"),
        (
            "containerd://1.7.2",
            OLD + "enable_cdi = true",
            "containerd://1.7.2 reads CDI files in /var/run/cdi",
            "",
        ),
        (
            "containerd://1.7.2",
            OLD,
            "containerd://1.7.2, FILE: enable_cdi=None",
            "set enable_cdi = true in [plugins.'io.containerd.grpc.v1.cri'], and restart containerd",
        ),
        ("containerd://2.0.0", "", "containerd://2.0.0 reads CDI files in /var/run/cdi", ""),
        (
            "containerd://2.0.0",
            NEW + "cdi_spec_dirs = ['/etc/cdi']",
            "containerd://2.0.0, FILE: cdi_spec_dirs=['/etc/cdi'] has no /var/run/cdi",
            "add it in [plugins.'io.containerd.cri.v1.runtime'] and restart containerd, or give one of them in"
            " --cdi-dir",
        ),
        (
            "containerd://2.0.0",
            None,
            "containerd://2.0.0, FILE cannot be read (No such file or directory), so its defaults are assumed",
            "",
        ),
        (
            "containerd://1.7.2",
            None,
            "containerd://1.7.2, FILE cannot be read (No such file or directory), so its defaults are assumed",
            "give the file in --containerd-config; it must say enable_cdi = true for containerd://1.7.2",
        ),
    ],
)
def test_what_the_container_runtime_is_set_to(
    tmp_path: Path, version: str, text: str | None, found: str, remedy: str
) -> None:
    file = tmp_path / "config.toml"
    if text is not None:
        file.write_text(text)
    told = [told for told in containerd.look(version, file, Path("/var/run/cdi")) if told[1] or not remedy]
    assert told == [(found.replace("FILE", str(file)), remedy)]


SPECIFIED = "[crio.runtime]\ncdi_spec_dirs = ['%s']\n"
READS = ("cri-o://1.35.0 reads CDI files in /var/run/cdi", "")


@pytest.mark.parametrize(
    ("version", "files", "found"),
    [
        ("cri-o://1.35.0", {}, READS),
        ("cri-o://1.35.0", {"crio.conf": "[crio.runtime]\n"}, READS),
        ("cri-o://1.22.1", {}, ("cri-o://1.22.1", "update it to 1.23 or later: it does not know CDI")),
        (
            "cri-o://main",
            {},
            ("cri-o://main: its version is not known, make sure that it reads CDI files in /var/run/cdi", ""),
        ),
        (
            "cri-o://1.35.0",
            {"crio.conf": SPECIFIED % "/etc/cdi"},
            (
                "cri-o://1.35.0, FOLDER/crio.conf: cdi_spec_dirs=['/etc/cdi'] has no /var/run/cdi",
                "add it in [crio.runtime] and restart CRI-O, or give one of them in --cdi-dir",
            ),
        ),
        (
            "cri-o://1.35.0",
            {"crio.conf": SPECIFIED % "/etc/cdi", "crio.conf.d/50": SPECIFIED % "/var/run/cdi"},
            READS,
        ),
        (
            "cri-o://1.35.0",
            {"crio.conf.d/50": SPECIFIED % "/var/run/cdi", "crio.conf.d/99": SPECIFIED % "/opt/cdi"},
            (
                "cri-o://1.35.0, FOLDER/crio.conf.d/99: cdi_spec_dirs=['/opt/cdi'] has no /var/run/cdi",
                "add it in [crio.runtime] and restart CRI-O, or give one of them in --cdi-dir",
            ),
        ),
    ],
)
def test_what_crio_is_set_to(tmp_path: Path, version: str, files: dict[str, str], found: tuple[str, str]) -> None:
    (tmp_path / "crio.conf.d").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    looked = [*crio.look(version, tmp_path / "crio.conf", Path("/var/run/cdi"))]

    assert looked == [(found[0].replace("FOLDER", str(tmp_path)), found[1])]


def test_a_file_of_crio_that_is_damaged_is_named(tmp_path: Path) -> None:
    file = tmp_path / "crio.conf"
    file.write_text("[crio")

    (found, remedy), reads = crio.look("cri-o://1.35.0", file, Path("/var/run/cdi"))

    assert found.startswith(f"cri-o://1.35.0, {file} is not TOML (")
    assert remedy == "correct it, or give the right file in --crio-config"
    assert reads == READS


async def test_a_node_with_crio_is_looked_at_by_its_files(
    settings: PluginSettings, client: Client, folder: Path
) -> None:
    status = {"status": {"nodeInfo": {**VERSIONS, "containerRuntimeVersion": "cri-o://1.35.0"}}}
    await client.patch(NODES, "n1", status, subresource="status")
    (folder / "crio.conf").write_text(SPECIFIED % "/etc/cdi")

    assert await to_mend(replace(settings, crio=folder / "crio.conf"), client) == [
        f"fix   container runtime: cri-o://1.35.0, {folder}/crio.conf: cdi_spec_dirs=['/etc/cdi'] has no"
        f" {folder}/cdi: add it in [crio.runtime] and restart CRI-O, or give one of them in --cdi-dir"
    ]


FOUND = [
    NodeDiagnosis("kubelet", "version v1.37.0"),
    NodeDiagnosis("API server", "not yours", "apply deploy/base again"),
]
SHOWN = {
    "text": "ok    kubelet: version v1.37.0\nfix   API server: not yours: apply deploy/base again",
    "wide": "STATE  SUBJECT     FOUND            REMEDY\n"
    "ok     kubelet     version v1.37.0  -\n"
    "fix    API server  not yours        apply deploy/base again",
    "name": "check/api-server",
    "yaml": "apiVersion: cli.parley.dev/v1alpha1\nkind: NodeDiagnosis\nnodeName: n1\nitems:\n"
    "- subject: kubelet\n  found: version v1.37.0\n  remedy: ''\n  well: true\n"
    "- subject: API server\n  found: not yours\n  remedy: apply deploy/base again\n  well: false",
}


@pytest.mark.parametrize("output", SHOWN)
def test_findings_are_printed_as_kubectl_prints(output: str) -> None:
    assert shown(FOUND, "n1", output) == SHOWN[output]


def test_findings_as_json_are_those_as_yaml_and_a_table_may_lack_its_headings() -> None:
    assert orjson.loads(shown(FOUND, "n1", "json")) == yaml.safe_load(SHOWN["yaml"])
    assert shown(FOUND, "n1", "wide", headings=False).splitlines()[0] == "ok   kubelet     version v1.37.0  -"
    assert shown(FOUND[:1], "n1", "name") == ""


async def test_the_program(settings: PluginSettings, folder: Path) -> None:
    (folder / "kubeconfig").write_text("{}")
    options = {
        "kubeconfig": folder / "kubeconfig",
        "node-name": "n1",
        "config": settings.config,
        "plugins-dir": settings.plugins,
        "plugins-registry-dir": settings.registry,
        "cdi-dir": settings.cdi,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley_kubelet", "doctor"),
        *(f"--{option}={value}" for option, value in options.items()),
        stdout=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    output, _ = await process.communicate()
    assert process.returncode == 8
    lines = output.decode().splitlines()
    assert lines[0] == f"ok    plugins-dir: {folder}/plugins"
    assert lines[-1].startswith("fix   API server: ")
