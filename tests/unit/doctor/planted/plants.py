"""Plants: functions that change the healthy cluster, so that the doctor has one fault to find."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.unit.doctor.conftest import Sick, ago
from tests.unit.doctor.healthy import SYSTEM

from parley.api.resources import CLASSES, LEASES, NODES, PODS, SERVER_VERSION, Resource
from parley.doctor import kinds
from parley.doctor.findings import Severity

Plant = Callable[[Sick], Awaitable[None]]

Cases = dict[str, tuple[Plant, str, Severity, str, str]]
"""By description: the plant, the check that finds the fault, severity, and words of its text and of its remedy."""

ERROR = Severity.ERROR
WARNING = Severity.WARNING


def deleted(resource: Resource[Any], name: str) -> Plant:
    async def plant(cluster: Sick) -> None:
        await cluster.client.delete(
            resource, name, SYSTEM if resource.namespaced else None, grace_period_seconds=0
        )

    return plant


def changed(resource: Resource[Any], name: str, *path: str | int, to: Any) -> Plant:
    """Set the field at that path of the object; None removes it."""

    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        if to is None:
            del body[path[-1]]
        else:
            body[path[-1]] = to

    async def plant(cluster: Sick) -> None:
        await cluster.replace(resource, name, change)

    return plant


def created(resource: Resource[Any], body: Any) -> Plant:
    async def plant(cluster: Sick) -> None:
        namespace = body["metadata"].get("namespace")
        await cluster.client.create(resource.untyped(), body, namespace)

    return plant


def all_of(*plants: Plant) -> Plant:
    async def plant(cluster: Sick) -> None:
        for one in plants:
            await one(cluster)

    return plant


def standalone(driver: str, seconds: float) -> Plant:
    spec = {"holderIdentity": "disks-0_1", "leaseDurationSeconds": 15, "renewTime": ago(seconds)}
    meta = {"name": f"parley-driver-{driver}", "namespace": SYSTEM}
    return created(LEASES, {"metadata": meta, "spec": spec})


def runs_standalone(load: str) -> dict[str, Any]:
    pod = {"containers": [{"name": "main", "command": ["parley", "driver", "run", load]}]}
    selector = {"matchLabels": {"app": "disks"}}
    return {
        "metadata": {"name": "disks", "namespace": SYSTEM},
        "spec": {"selector": selector, "template": {"metadata": {"labels": {"app": "disks"}}, "spec": pod}},
    }


def waiting(pod: str, reason: str, message: str) -> Plant:
    status = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}],
    }
    return changed(PODS, pod, "status", to=status)


def reservation_pods_on_1_36(spec: Mapping[str, str]) -> Plant:
    labels = {"parley.dev/reserved-claim": "uid-1"}
    pod = {"metadata": {"name": "reservation-1", "namespace": SYSTEM, "labels": labels}, "spec": dict(spec)}
    args = ("spec", "template", "spec", "containers", 0, "args")
    enabled = ["--reservation-pods-for=default-scheduler"]
    return all_of(
        changed(SERVER_VERSION, "version", "gitVersion", to="v1.36.3"),
        changed(NODES, "node-1", "status", "nodeInfo", "kubeletVersion", to="v1.36.3"),
        changed(NODES, "node-2", "status", "nodeInfo", "kubeletVersion", to="v1.36.3"),
        changed(kinds.DEPLOYMENTS, "parley-controller", *args, to=enabled),
        created(PODS, pod),
    )


DISK_CLASS = created(CLASSES, {"metadata": {"name": "disk"}, "driverName": "disk.example.com"})
