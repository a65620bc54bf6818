"""Checks this node for the plugin, and reports what has to be fixed.

    parley-kubelet doctor <the options of the plugin>

Each finding is a line, with the remedy if something is wrong. Nothing is changed: it can run beside the plugin.
`cdi.containerd` and `cdi.crio` check the container runtime, `cdi.validation` CDI files; `findings` prints the
result.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson

from parley.api.resources import CLAIM_RELEASES, NODES, RESOURCE_SLICES
from parley.api.wording import counted
from parley.kube.client import ApiError, Client, OutcomeUnknown
from parley.kube.credentials import NoConfiguration
from parley.kube.errors import Unreachable
from parley_kubelet.cdi import containerd, crio, validation
from parley_kubelet.configuration import Configuration, ConfigurationError, load
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.driver.devices import NameTaken, missing_device_nodes
from parley_kubelet.findings import NodeDiagnosis
from parley_kubelet.hooks import NodeDriver
from parley_kubelet.loading import LoadError
from parley_kubelet.plugin import make_drivers
from parley_kubelet.serving.sockets import SocketRefused, is_served, socket_paths
from parley_kubelet.settings import PluginSettings
from parley_kubelet.state.checkpoint import FILE, Checkpoint, CheckpointError, Entries
from parley_kubelet.state.durable import Folder

OLDEST_KUBELET = (1, 34)
"""The first kubelet version with DRA v1; earlier ones have only v1beta1."""


Connect = Callable[[PluginSettings], AbstractAsyncContextManager[Client]]


async def diagnose(settings: PluginSettings, connect: Connect) -> list[NodeDiagnosis]:
    """All findings, in order of importance."""
    findings = list(_folders(settings))
    try:
        configuration = load(settings.config)
        drivers = make_drivers(settings, configuration)
    except (ConfigurationError, LoadError, NameTaken) as error:
        findings.append(NodeDiagnosis("configuration", str(error), "the drivers can't be checked before that"))
        drivers, configuration = (), Configuration()
    findings += [
        NodeDiagnosis("device", fault, "bring it back, or take it out of the file")
        for fault in missing_device_nodes(configuration)
    ]
    for driver in drivers:
        findings += [
            NodeDiagnosis("driver", f"{driver.name} ({type(driver).__name__})"),
            *_driver(driver, settings),
        ]
    findings += [finding async for finding in _cluster(settings, connect)]
    return findings


def _folders(settings: PluginSettings) -> Iterator[NodeDiagnosis]:
    """Checks the kubelet's and the runtime's folders. In a pod, of the plugins' folder only each driver's own one
    is mounted: see `_own_folder`."""
    yield _present("plugins-dir", settings.plugins, "the kubelet's")
    for option, path, whose in (
        ("plugins-registry-dir", settings.registry, "the kubelet's"),
        ("cdi-dir", settings.cdi, "the container runtime's"),
    ):
        yield _folder(option, path, whose)


def _present(option: str, path: Path, whose: str) -> NodeDiagnosis:
    if not path.is_dir():
        return NodeDiagnosis(
            option, f"{path} is not a folder", f"mount {whose} folder there, or correct --{option}"
        )
    return NodeDiagnosis(option, str(path))


def _own_folder(path: Path) -> Iterator[NodeDiagnosis]:
    """Checks the folder of the driver's socket, which the plugin creates if it does not exist."""
    place = path if path.exists() else path.parent
    if not os.access(place, os.W_OK | os.X_OK):
        remedy = f"run as root, and mount the node's {path} there, writable"
        yield NodeDiagnosis("plugins-dir", f"{place} cannot be written", remedy)


def _folder(option: str, path: Path, whose: str) -> NodeDiagnosis:
    if not path.is_dir():
        return _present(option, path, whose)
    if not os.access(path, os.W_OK | os.X_OK):
        return NodeDiagnosis(option, f"{path} cannot be written", "run as root, and mount the folder writable")
    return NodeDiagnosis(option, str(path))


def _driver(driver: NodeDriver[Any, Any], settings: PluginSettings) -> Iterator[NodeDiagnosis]:
    yield from _own_folder(settings.plugins / driver.name)
    yield _sockets(driver, settings)
    own = isinstance(driver, DeviceNodeDriver)
    state = settings.state_of(driver.name, own=own)
    if not (state / FILE).exists():
        yield NodeDiagnosis("checkpoint", f"{state / FILE}: none yet, nothing is prepared")
        entries: Entries = {}
    else:
        try:
            entries = Checkpoint(Folder(state), driver.node).read()
        except (CheckpointError, OSError) as error:
            yield NodeDiagnosis("checkpoint", str(error), "follow that message; until then nothing is prepared")
            return
        yield from _entries(state / FILE, entries)
    yield from _specifications(driver, settings, entries)


def _sockets(driver: NodeDriver[Any, Any], settings: PluginSettings) -> NodeDiagnosis:
    try:
        paths = socket_paths(settings.plugins, settings.registry, driver.name, settings.instance)
    except SocketRefused as error:
        return NodeDiagnosis("socket", str(error), "the kubelet cannot connect otherwise")
    found = sorted(paths.registration.parent.glob(f"{driver.name}*-reg.sock"))
    dead = [path for path in found if not is_served(path)]
    if dead:
        return NodeDiagnosis(
            "socket", f"{dead[0]} is left from a plugin that was killed", "start the plugin, or remove it"
        )
    return NodeDiagnosis("socket", f"{driver.name} is served at {', '.join(map(str, found)) or 'no socket now'}")


def _entries(path: Path, entries: Entries) -> Iterator[NodeDiagnosis]:
    half = [entry.full_name for entry in entries.values() if entry.phase != "prepared"]
    if half:
        yield NodeDiagnosis(
            "checkpoint",
            f"{path}: {', '.join(half)} only half prepared or unprepared",
            "see the plugin's log for the driver's error; the kubelet tries again",
        )
    yield NodeDiagnosis("checkpoint", f"{path}: {counted(len(entries), 'claim')}")


def _specifications(
    driver: NodeDriver[Any, Any], settings: PluginSettings, entries: Entries
) -> Iterator[NodeDiagnosis]:
    files = sorted(settings.cdi.glob(f"parley.dev-{driver.name}-claim-*.json"))
    for path in files:
        if not any(uid in path.name for uid in entries):
            yield NodeDiagnosis(
                "CDI", f"{path} does not belong to a prepared claim", "restart the plugin: it removes the file"
            )
        try:
            wrong = validation.faults(orjson.loads(path.read_bytes()))
        except (OSError, orjson.JSONDecodeError) as error:
            wrong = (str(error),)
        for fault in wrong:
            yield NodeDiagnosis("CDI", f"{path}: {fault}", "restart the plugin: it writes the file again")
    yield NodeDiagnosis("CDI", f"{counted(len(files), 'file')} of {driver.name} in {settings.cdi}")


async def _cluster(settings: PluginSettings, connect: Connect) -> AsyncIterator[NodeDiagnosis]:
    try:
        async with connect(settings) as client:
            node = await client.get(NODES.untyped(), settings.node)
            await client.list(RESOURCE_SLICES, field_selector=f"spec.nodeName={settings.node}")
            await client.list(CLAIM_RELEASES, field_selector=f"spec.nodeName={settings.node}")
    except (ApiError, OutcomeUnknown, NoConfiguration, OSError) as error:
        remedy = "correct --kubeconfig and --node-name, or apply deploy/base again"
        yield NodeDiagnosis("API server", _no_answer(error), remedy)
        return
    yield NodeDiagnosis("API server", f"knows node {settings.node}, and slices and releases may be read")
    info = (node.get("status") or {}).get("nodeInfo") or {}
    yield _kubelet(str(info.get("kubeletVersion", "")))
    for found, remedy in _runtime(str(info.get("containerRuntimeVersion", "")), settings):
        yield NodeDiagnosis("container runtime", found, remedy)


def _runtime(version: str, settings: PluginSettings) -> Iterator[containerd.RuntimeCheck]:
    if version.startswith("cri-o://"):
        return crio.look(version, settings.crio, settings.cdi)
    return containerd.look(version, settings.containerd, settings.cdi)


def _no_answer(error: Exception) -> str:
    if isinstance(error, Unreachable):
        return f"{error.server} does not answer: {error.why}"
    return error.message if isinstance(error, ApiError) else str(error)


def _kubelet(version: str) -> NodeDiagnosis:
    numbers = version.removeprefix("v").split(".")[:2]
    if len(numbers) < 2 or not all(number.isdigit() for number in numbers):
        return NodeDiagnosis(
            "kubelet", f"version {version!r} is not known", "wait until the node has reported itself"
        )
    if (int(numbers[0]), int(numbers[1])) < OLDEST_KUBELET:
        return NodeDiagnosis(
            "kubelet", f"version {version}", "update it to 1.34 or later: it does not know DRA v1"
        )
    return NodeDiagnosis("kubelet", f"version {version}")
