"""Looking into containers of real nodes: what they were given, and ways in which they end."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.cluster.namespace import Namespace
from tests.cluster.watching import until_one

from parley.api.resources import PODS
from parley_devcluster import Cluster, ClusterError, machine, processes
from parley_devcluster.layout import Node
from parley_devcluster.processes import ProcessIdentity

LOOK: Final = """
env > /tmp/looking
for node in $(sed -n 's/^NODE_OF_.*=//p' /tmp/looking); do
  test -c $node && echo "$(basename $node) gives $(head -c 4 $node | wc -c) bytes" >> /tmp/looking
done
mv /tmp/looking /tmp/seen
"""
"""A script's beginning: note the environment, and what each device node of the tests' devices gives."""

TELL: Final = LOOK + "grep gives /tmp/seen > /dev/termination-log || true"
"""The script of a container that ends: its last words are the devices that it had."""

KILLED: Final = "command terminated with exit code 137"
"""What `kubectl exec` says of a process that went with its container."""

UNTIL_CRASHED: Final = "until [ -e /tmp/crash ]; do sleep 0.1; done; exit 7"


def seen(cluster: Cluster, team: Namespace, name: str, container: str = "main") -> list[str]:
    """What a container that began with LOOK noted."""
    wait = "until [ -e /tmp/seen ]; do sleep 0.1; done; cat /tmp/seen"
    return execute(cluster, team, name, wait, container).splitlines()


def devices_seen(cluster: Cluster, team: Namespace, name: str, container: str = "main") -> list[str]:
    """The names of the devices whose nodes worked in a container that began with LOOK."""
    return named([line for line in seen(cluster, team, name, container) if "gives" in line])


def named(lines: list[str]) -> list[str]:
    """The devices of lines like `b-0 gives 4 bytes`."""
    assert all(line.endswith(" gives 4 bytes") for line in lines), lines
    return sorted(line.split()[0] for line in lines)


def execute(cluster: Cluster, team: Namespace, name: str, script: str, container: str = "main") -> str:
    """What the script printed in the container."""
    return cluster.kubectl(
        "exec", f"--namespace={team.name}", name, f"--container={container}", "--", "sh", "-c", script
    )


def touch(cluster: Cluster, team: Namespace, name: str, file: str = "/tmp/finish") -> None:
    """Make the file that the container ends at. It may end, and its `touch` with it, before that one returns."""
    try:
        execute(cluster, team, name, f"touch {file}")
    except ClusterError as error:
        if not str(error).endswith(KILLED):
            raise


async def status(
    team: Namespace, name: str, holds: Callable[[Mapping[str, Any]], bool] = lambda _: True, what: str = "is there"
) -> Mapping[str, Any]:
    """What the kubelet says of the first container of a pod, as soon as `holds` is true of it."""

    def found(pod: Mapping[str, Any]) -> bool:
        return any(holds(one) for one in pod["status"].get("containerStatuses", ())[:1])

    pod = await until_one(
        team.client, PODS.untyped(), name, found, f"has a container that {what}", namespace=team.name
    )
    first: Mapping[str, Any] = pod["status"]["containerStatuses"][0]
    return first


async def restarted(team: Namespace, name: str, times: int = 1) -> Mapping[str, Any]:
    """The same, as soon as the container runs after so many restarts."""
    return await status(
        team,
        name,
        lambda one: one["restartCount"] == times and "running" in one["state"],
        f"was restarted {times}x",
    )


def sandbox(node: Node, pod_uid: str) -> ProcessIdentity:
    """The process that the pod's sandbox lives by, as the development cluster's pause image has it."""
    (found,) = [
        process for process in of_pod(node, pod_uid) if command_line(process).startswith("/bin/sh -c trap")
    ]
    return found


def of_pod(node: Node, pod_uid: str) -> list[ProcessIdentity]:
    """The processes of the pod's containers."""
    every = (processes.identify(pid) for pid in machine.cgroup_processes(node.scope))
    return [process for process in every if process is not None and f"pod{pod_uid}" in _read(process, "cgroup")]


def command_line(process: ProcessIdentity) -> str:
    """As `ps` shows it; empty if it is gone."""
    return _read(process, "cmdline").replace("\0", " ")


def _read(process: ProcessIdentity, file: str) -> str:
    try:
        return Path(f"/proc/{process.pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""
