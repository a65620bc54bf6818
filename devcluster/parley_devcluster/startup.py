"""Starts a cluster's components in order, after checking the machine.

Container runtimes start in parallel with etcd and are ready when the API server is; scheduler, controller-manager
and kubelets start together.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from parley.kube.client import Client, NotFound
from parley_devcluster import commands, debian, machine, prepare, processes, state, teardown
from parley_devcluster.api import NAMESPACES, NODES, ApiServer, when_found
from parley_devcluster.component import Component
from parley_devcluster.control_plane import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER
from parley_devcluster.layout import Layout, Node

_NODE_LIMIT = 90.0  # seconds until a node is ready
_IMPORT_LIMIT = 300.0  # seconds for unpacking images: Parley's own has ten thousand files


class ClusterError(RuntimeError):
    """A cluster can't be started here, or an operation on it failed; the message says what to change."""


def check_machine(layout: Layout) -> None:
    """Prepare the machine for real nodes, which need root, Debian's packages, and no other kubelet. Raises
    `ClusterError`."""
    if not layout.nodes:
        return
    if os.geteuid() != 0:
        raise ClusterError("real nodes need root: run as root, or start the cluster with fake nodes only")
    foreign = processes.unmarked("kubelet")
    if foreign:
        raise ClusterError(
            f"a kubelet of another cluster runs on this machine (process {foreign[0]}), with which real nodes"
            " would share the device plugins' folder: start the cluster with fake nodes only, or use another"
            " machine"
        )
    debian.install_missing()
    machine.allow_file_watches()


def make_empty(directory: Path) -> None:
    """Create the directory, or remove the earlier cluster in it. Raises `ClusterError` for any other content."""
    ours = state.read(directory) is not None or (directory / prepare.MARKER).is_file()
    teardown.clean(directory)
    if ours:
        teardown.remove_directory(directory)
    elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ClusterError(f"cluster directory {directory} holds other files: name an empty or a new one")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.stat().st_uid != os.geteuid():
        raise ClusterError(f"cluster directory {directory} belongs to another user: name one of your own")
    (directory / prepare.MARKER).touch()


def bring_up(layout: Layout, components: Mapping[str, Component], api: ApiServer) -> None:
    """Start every component, and wait until all are healthy and the nodes are ready.

    Raises `ComponentFailed` or `ClusterError` with the end of the failed component's log.
    """
    _launch_runtimes(layout, components)
    for name in (ETCD, API_SERVER):
        components[name].start()
    followers = [components[name] for name in (CONTROLLER_MANAGER, SCHEDULER)]
    for component in followers:
        component.launch()
    _launch_kubelets(layout, components)
    for component in followers:
        component.wait_ready()
    api.ask(lambda client: when_found(lambda: client.get(NAMESPACES, "default")))
    _wait_for_nodes(layout, components, api)


def _launch_runtimes(layout: Layout, components: Mapping[str, Component]) -> None:
    if layout.nodes:
        prepare.write_images(layout)
    for node in layout.nodes:
        prepare.write_node(layout, node, datetime.now(UTC))
        prepare.make_node_parts(node)
        components[node.containerd].launch()


def _launch_kubelets(layout: Layout, components: Mapping[str, Component]) -> None:
    for node in layout.nodes:
        components[node.containerd].wait_ready()
        import_images(layout, node, layout.directory / prepare.IMAGES)
        components[node.kubelet].launch()


def import_images(layout: Layout, node: Node, archive: Path) -> None:
    """Import the images of an archive into the node. Raises `ClusterError`."""
    client = (str(layout.binaries / "ctr"), "--address", str(node.containerd_socket), "--namespace", "k8s.io")
    command = [*client, "images", "import", str(archive)]
    shown = f"importing images into node {node.name!r}"
    commands.run(command, ClusterError, limit=_IMPORT_LIMIT, shown=shown)


def _wait_for_nodes(layout: Layout, components: Mapping[str, Component], api: ApiServer) -> None:
    deadline = time.monotonic() + _NODE_LIMIT
    for node in layout.nodes:
        kubelet = components[node.kubelet]
        kubelet.wait_ready()
        api.ask(partial(_until_ready, node, kubelet, lifecycle=layout.node_lifecycle, deadline=deadline))


async def _until_ready(
    node: Node, kubelet: Component, client: Client, *, lifecycle: bool, deadline: float
) -> None:
    """Wait until the node is ready. With `lifecycle` a controller removes the not-ready taint; otherwise it is
    removed here."""
    while not await _ready(client, node.name, free_of_taints=lifecycle):
        if time.monotonic() > deadline or not kubelet.running:
            last = kubelet.last_lines()
            raise ClusterError(f"node {node.name!r} did not become ready; the end of its kubelet's log:\n{last}")
        await asyncio.sleep(0.1)
    if not lifecycle:
        await client.patch(NODES, node.name, {"spec": {"taints": None}})


async def _ready(client: Client, name: str, *, free_of_taints: bool) -> bool:
    """Whether the node's condition Ready is True and, with `free_of_taints`, it has no taints left."""
    try:
        node = await client.get(NODES, name)
    except NotFound:
        return False
    conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", ())}
    tainted = free_of_taints and bool(node["spec"].get("taints"))
    return conditions.get("Ready") == "True" and not tainted
