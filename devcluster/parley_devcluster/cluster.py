"""A real Kubernetes cluster on this machine, which tests and users start, use and stop.

This is the interface only: the order of starting is `startup`'s, command lines are made by `control_plane`
and `node_files`, what they read by `prepare`, and how everything ends is `teardown`'s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from parley.kube.client import Client
from parley_devcluster import (
    binaries,
    commands,
    control_plane,
    fake_nodes,
    kubeconfig,
    machine,
    node_files,
    prepare,
    processes,
    startup,
    state,
    teardown,
    versions,
)
from parley_devcluster.api import SERVICE_ACCOUNTS, ApiServer, answers, when_found
from parley_devcluster.certificates import Authority
from parley_devcluster.component import Component
from parley_devcluster.control_plane import ADMIN, Command
from parley_devcluster.gobuild import Report, say
from parley_devcluster.layout import Layout, Node, NodeOptions
from parley_devcluster.processes import ProcessIdentity
from parley_devcluster.startup import ClusterError
from parley_devcluster.state import ClusterState

_DAY = 86400


class Cluster:
    """A control plane and nodes that run on this machine. Create one with `Cluster.start` or `Cluster.attach`."""

    def __init__(self, recorded: ClusterState) -> None:
        self._state = recorded
        self._api = ApiServer(recorded.layout.admin_kubeconfig)
        self._components = {command.name: self._supervise(command) for command in _commands(recorded)}

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        nodes: Sequence[NodeOptions] = (),
        version: str = versions.KUBERNETES,
        fake_nodes: int = 0,
        node_lifecycle: bool | None = None,
        service_accounts: bool = False,
        scheduler_config: Mapping[str, Any] | None = None,
        report: Report = say,
    ) -> Cluster:
        """Start a cluster with its files in `directory`, and wait until its nodes are ready.

        A cluster that the directory records from before is taken down first, its files deleted. Programs that
        are found nowhere are built (8 minutes, once per version), Debian packages that real nodes need are
        installed when root. `node_lifecycle` tells whether nodes without heartbeats become unreachable; by
        default they do unless there are fake nodes. With `service_accounts` pods get the tokens of theirs, as in
        any other cluster; without, a namespace takes pods as soon as it is there. `scheduler_config` is merged
        over the top level of the KubeSchedulerConfiguration.

        Raises `ClusterError`, `LayoutError`, `BuildError`, `PackagesMissing` or `ComponentFailed`, each of
        which names the remedy; what was started until then is stopped.
        """
        directory = directory.resolve()
        lifecycle = fake_nodes == 0 if node_lifecycle is None else node_lifecycle
        chosen = versions.kubernetes_version(version)
        layout = prepare.plan(
            directory,
            chosen,
            nodes,
            node_lifecycle=lifecycle,
            service_accounts=service_accounts,
            scheduler_config=scheduler_config or {},
        )
        startup.check_machine(layout)
        startup.make_empty(directory)
        wanted = [*versions.CONTROL_PLANE, *(versions.NODE if nodes else ())]
        programs = binaries.obtain(wanted, chosen, report=report)
        recorded = ClusterState(layout, processes.boot_id())
        state.write(recorded)
        try:
            binaries.link(programs, layout.binaries)
            prepare.write_control_plane(layout, datetime.now(UTC))
            cluster = cls(recorded)
            startup.bring_up(layout, cluster._components, cluster._api)
            if fake_nodes:
                cluster.add_fake_nodes(fake_nodes)
        except BaseException:
            teardown.clean(directory)
            raise
        return cluster

    @classmethod
    def attach(cls, directory: Path) -> Cluster:
        """The cluster that another process started in `directory`; raises `ClusterError` if none runs."""
        recorded = state.read(directory.resolve())
        server = recorded.processes.get(control_plane.API_SERVER) if recorded else None
        if recorded is None or server is None or not processes.alive(server):
            raise ClusterError(f"no cluster runs in {directory}: start one with `make cluster`")
        return cls(recorded)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def directory(self) -> Path:
        """The directory of all its files."""
        return self._layout.directory

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig; certificates inline, so that it can be copied."""
        return self._layout.admin_kubeconfig

    @property
    def server(self) -> str:
        """The API server's address, `https://127.0.0.1:<port>`."""
        return self._layout.server

    @property
    def version(self) -> str:
        """Kubernetes' version, such as `v1.37.0`."""
        return self._layout.version

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The real nodes, with the paths of their sockets and folders."""
        return self._layout.nodes

    @property
    def component_names(self) -> tuple[str, ...]:
        """The names of all components, including those added later."""
        return tuple(self._components)

    def component(self, name: str) -> Component:
        """The component of that name, such as `kubelet-<node>`; raises `ClusterError` for others."""
        try:
            return self._components[name]
        except KeyError:
            known = ", ".join(self._components)
            raise ClusterError(f"component {name!r} is not part of the cluster, which has: {known}") from None

    def node(self, name: str) -> Node:
        """The real node of that name; raises `ClusterError` for others."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes) or "none"
        raise ClusterError(f"node {name!r} is not a real node of the cluster, which has: {known}")

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A new kubeconfig whose client certificate names the user and the groups."""
        name = f"user-{_file_name(user)}"
        pair = self._authority.client(name, user, groups, datetime.now(UTC))
        document = kubeconfig.with_certificate(self.server, self._authority.pair.certificate, pair)
        return kubeconfig.write(self._layout.kubeconfigs / name, document)

    def kubeconfig_for_service_account(
        self, namespace: str, name: str, *, node: str = "", seconds: int = _DAY
    ) -> Path:
        """A new kubeconfig with a token of that service account, valid for `seconds`.

        With `node` it names that node, as the token of a pod there does, and ends with that Node object.
        Raises `NotFound` where the account does not appear within 5 s, or the node does not exist.
        """
        bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node}} if node else {}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds, **bound},
        }

        def request(client: Client) -> Coroutine[Any, Any, dict[str, Any]]:
            return when_found(lambda: client.create_subresource(SERVICE_ACCOUNTS, name, "token", body, namespace))

        token = self._api.ask(request)["status"]["token"]
        document = kubeconfig.with_token(self.server, self._authority.pair.certificate, token)
        file = "-".join(filter(None, ("sa", namespace, name, node)))
        return kubeconfig.write(self._layout.kubeconfigs / file, document)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the admin and return its output; raises `ClusterError` with its stderr if it fails."""
        program = str(self._layout.binaries / "kubectl")
        command = [program, f"--cache-dir={self.directory}/kubectl-cache", *arguments]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        shown = f"kubectl {' '.join(arguments)}"
        return commands.run(command, ClusterError, environment=environment, stdin=stdin or "", shown=shown)

    def import_images(self, node: str, archive: Path) -> None:
        """Import the images of a `docker-archive` tar file into that real node. Raises `ClusterError`."""
        startup.import_images(self._layout, self.node(node), archive)

    def add_fake_nodes(
        self,
        count: int,
        *,
        allocatable: Mapping[str, str] = fake_nodes.ALLOCATABLE,
        labels: Mapping[str, str] | None = None,
        prefix: str = "fake-",
    ) -> list[str]:
        """Add nodes without a kubelet and return their names; a second call continues the numbering."""
        if self._layout.node_lifecycle:
            raise ClusterError(
                "fake nodes become unreachable after 40 s in this cluster: start it with fake_nodes or with"
                " node_lifecycle=False"
            )
        return self._api.ask(lambda client: fake_nodes.add(client, count, prefix, allocatable, labels or {}))

    def add_program(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        health: str | None = None,
    ) -> Component:
        """Start another program as a component, which is logged, recorded and ended with the cluster.

        `health` is the URL that answers 200, or the path of the unix socket that accepts connections, once it
        serves.
        """
        return self._add(Command(name, tuple(argv), health, environment or {}))

    def add_scheduler(self, name: str, configuration: Mapping[str, Any]) -> Component:
        """Start another kube-scheduler as a component of that name.

        `configuration` is merged over the top level of the KubeSchedulerConfiguration; its profiles have to
        name another `schedulerName` than the cluster's own scheduler does.
        """
        prepare.write_scheduler(self._layout, name, configuration)
        (port,) = machine.free_ports(1)
        return self._add(control_plane.further_scheduler(self._layout, name, port))

    def stop(self) -> None:
        """Take everything down; raises `Leftovers` if something remains. Files, such as logs, are kept."""
        teardown.clean(self.directory)

    @property
    def _layout(self) -> Layout:
        return self._state.layout

    @property
    def _authority(self) -> Authority:
        return Authority(self._layout.pki)

    def _supervise(self, command: Command) -> Component:
        certificate, admin = self._authority.pair.certificate, self._authority.named(ADMIN)
        return Component(
            command,
            self.directory,
            self._layout.logs / f"{command.name}.log",
            lambda url: answers(url, certificate, admin),
            self._record,
            self._state.processes.get(command.name),
        )

    def _add(self, command: Command) -> Component:
        if command.name in self._components and self._components[command.name].running:
            raise ClusterError(f"component {command.name!r} runs already: stop it first or choose another name")
        self._change(lambda known: known.with_program(command))
        component = self._components[command.name] = self._supervise(command)
        component.start()
        return component

    def _record(self, name: str, process: ProcessIdentity | None) -> None:
        self._change(lambda known: known.with_process(name, process) if process else known.without_process(name))

    def _change(self, how: Callable[[ClusterState], ClusterState]) -> None:
        """Change the recorded state, which another process that attached to the cluster may have changed."""
        self._state = state.change(self._state, how)


def _commands(recorded: ClusterState) -> list[Command]:
    layout = recorded.layout
    commands = list(control_plane.control_plane(layout))
    for node in layout.nodes:
        commands += [node_files.containerd(layout, node), node_files.kubelet(layout, node)]
    return [*commands, *recorded.programs]


def _file_name(user: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in user)
