"""A dump of the cluster in few lines, for the message of a failure: the API's pods and claims, Parley's memory."""

from collections.abc import Iterator

from tests.soak.cluster.world import World
from tests.soak.rules.mirrors import is_parleys, read

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, NODES, PODS


def dump(world: World) -> str:
    """Pods, nodes, claims, and each controller's ledger and devices."""
    return "\n".join([*_pods(world), *_nodes(world), *_claims(world), *_controllers(world), *_drivers(world)])


def _pods(world: World) -> Iterator[str]:
    for stored in world.server.store.collection(PODS).objects.values():
        meta, spec, status = stored.meta, stored.body["spec"], stored.body["status"]
        node, going = spec.get("nodeName", "-"), "deleted" if meta.get("deletionTimestamp") else ""
        nominated = status.get("nominatedNodeName", "")
        about = (
            f"{spec['schedulerName']}, {spec.get('priority', 0)}{_LETTERS.get(spec.get('preemptionPolicy'), '')}"
        )
        yield f"  pod {meta['name']} ({about}): {node} {status.get('phase')} {nominated} {going}".rstrip()


_LETTERS = {"Never": " preempts nobody"}


def _nodes(world: World) -> Iterator[str]:
    for stored in world.server.store.collection(NODES).objects.values():
        yield f"  node {stored.meta['name']}: {stored.body.get('spec') or ''}"


def _claims(world: World) -> Iterator[str]:
    for stored in world.server.store.collection(BUILTIN_CLAIMS).objects.values():
        if is_parleys(stored.body):
            record = read(stored.body)
            users = " ".join(world.invariants.pods[u].name[1] for u in record.users if u in world.invariants.pods)
            going = "deleted" if stored.meta.get("deletionTimestamp") else ""
            devices = " ".join("/".join(device) for device in record.devices)
            nodes = " ".join(record.nodes)
            yield f"  mirror {record.name[1]}: <{devices}> on <{nodes}> for <{users}> {going}".rstrip()
    for stored in world.server.store.collection(CLAIMS).objects.values():
        status = stored.body.get("status") or {}
        users = " ".join(user["name"] for user in status.get("reservedFor") or ())
        going = "deleted" if stored.meta.get("deletionTimestamp") else ""
        handles = (status.get("allocation") or {}).get("handles") or [{}]
        devices = " ".join(f"{d['pool']}/{d['device']}" for d in handles[0].get("devices") or ())
        until = f"until {status['keptUntil']}" if status.get("keptUntil") else ""
        yield f"  claim {stored.meta['name']}: <{devices}> for <{users}> {until} {going}".rstrip()


def _drivers(world: World) -> Iterator[str]:
    for process in world.standalone:
        yield f"  {process.name}: {'leads' if process.leads else 'waits'}"
        for uid, devices in process.driver.held().items():
            yield f"    driver: {' '.join(f'{d.pool}/{d.device}' for d in devices)} for {uid}"


def _controllers(world: World) -> Iterator[str]:
    for process in world.controllers:
        yield f"  {process.name}: {'leads' if process.leads else 'waits'}"
        for holding in process.controller.ledger if process.controller is not None else ():
            users = " ".join(pod.name for pod in holding.pods.values())
            devices = " ".join(f"{d.pool}/{d.device}" for d in holding.allocation.devices)
            where = f"on {holding.node} for <{users}>, written: {holding.written.value}"
            yield f"    holding {holding.claim}: <{devices}> {where}"
        for kept in process.nominations:
            yield f"    kept on {kept.node} for {kept.pod.name}, as {' '.join(kept.terminating)} terminate"
        for uid, devices_held in process.driver.held().items():
            yield f"    driver: {' '.join(f'{d.pool}/{d.device}' for d in devices_held)} for {uid}"
