"""Checks of nodes: the plugin runs where it should, its slices are complete and current, and devices can get into
containers."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from parley.api.builtin import ResourceSlice
from parley.api.names import PUBLISHED_BY_LABEL
from parley.api.resources import CLASSES, RESOURCE_SLICES
from parley.api.wording import listed, noun_for
from parley.doctor.facts import RAW_NODES, RAW_PODS, Facts
from parley.doctor.findings import Finding, error, ok, warning
from parley.doctor.kinds import DAEMON_SETS, Body
from parley.doctor.workloads import host_paths, node_of, pods_of, ready, runs, trouble, uncreated
from parley.drivers.device import DeviceDriver

PROGRAM = "parley-kubelet"
_PLUGINS = "plugins"
"""The folder in the kubelet's that has one for each driver."""


def plugin(facts: Facts) -> Iterator[Finding]:
    """The DaemonSet's pods are ready. A plugin may also run outside of pods: then its slices show it."""
    found, pods = daemon_sets(facts), facts.all(RAW_PODS)
    if found:
        yield from _daemon_sets(facts, found, pods)
        return
    if _slices(facts):
        yield ok(f"no DaemonSet in namespace {facts.namespace}: the plugins that publish slices run elsewhere")
    elif classes := [one.metadata.name for one in facts.all(CLASSES) if one.node_part == "Required"]:
        yield error(
            f"no node plugin runs: pods of {'classes' if len(classes) > 1 else 'class'} {listed(classes)} wait",
            "install it (the chart's nodePlugin.enabled, or deploy/default: docs/install.md), or set nodePart: "
            "None in classes that need none",
        )
    else:
        yield ok("no class needs a node plugin, and none runs")


def daemon_sets(facts: Facts) -> list[Body]:
    """The DaemonSets that run the node plugin."""
    return [one for one in facts.named(DAEMON_SETS).values() if runs(one, PROGRAM)]


def _daemon_sets(facts: Facts, found: Sequence[Body], pods: Sequence[Body]) -> Iterator[Finding]:
    """Each has nodes of its own; a node that none has gets no devices."""
    reached: set[str] = set()
    for daemon_set in found:
        own = pods_of(daemon_set, pods)
        reached.update(node_of(pod) for pod in own)
        if count := uncreated(daemon_set):
            yield _refused(facts, daemon_set, count)
        yield from _daemon_set(facts, _title(facts, [daemon_set]), own)
    if any(map(uncreated, found)):
        return  # nodes that lack a pod are meant to have one
    if without := [name for name in _names(facts) if name not in reached]:
        where, whose = f"{noun_for(len(without), 'node')} {listed(without)}", noun_for(len(found), "DaemonSet")
        yield warning(
            f"no node plugin on {where}: no pod gets devices there",
            f"if they have devices, see nodeSelector, affinity and tolerations of the {whose}",
            _title(facts, found),
        )


def _refused(facts: Facts, daemon_set: Body, count: str) -> Finding:
    name = daemon_set["metadata"]["name"]
    return error(
        f"{count} pods exist, so no pod gets devices on the other nodes: the API server refuses them",
        f"see the events of kubectl -n {facts.namespace} describe daemonset {name}. If they name PodSecurity: "
        f"kubectl label namespace {facts.namespace} pod-security.kubernetes.io/enforce=privileged --overwrite; if "
        "they name a quota: priorityClassQuota of the chart",
        _title(facts, [daemon_set]),
    )


def _title(facts: Facts, found: Sequence[Body]) -> str:
    names = [f"{facts.namespace}/{one['metadata']['name']}" for one in found]
    return f"{noun_for(len(names), 'DaemonSet')} {listed(names)}"


def _daemon_set(facts: Facts, about: str, own: Sequence[Body]) -> Iterator[Finding]:
    broken = {node_of(pod): why for pod in own if (why := trouble(pod))}
    served = {node_of(pod) for pod in own if ready(pod)}
    for node, why in sorted(broken.items()):
        if node in served:
            continue  # an update: the old one still serves
        yield error(
            f"the node plugin does not work on node {node}, so no pod gets devices there: {why}",
            f"see kubectl -n {facts.namespace} describe pod POD, whose events say why a container does not start, "
            "and the pod's log; run parley-kubelet doctor in it or on the node",
            about,
        )
    if not broken:
        yield ok(f"ready on {len(served)} {'node' if len(served) == 1 else 'nodes'}", about)


def _names(facts: Facts) -> list[str]:
    return [node["metadata"]["name"] for node in facts.all(RAW_NODES)]


def _slices(facts: Facts) -> list[ResourceSlice]:
    """The slices of Parley's drivers, including node plugins' drivers that no class names yet."""
    drivers = {DeviceDriver.name, *(one.driver_name for one in facts.all(CLASSES))}
    paths = (PurePosixPath(path) for one in daemon_sets(facts) for path in host_paths(one).values())
    drivers.update(path.name for path in paths if path.parent.name == _PLUGINS)
    return [one for one in facts.all(RESOURCE_SLICES) if one.spec.driver in drivers]


def slices(facts: Facts) -> Iterator[Finding]:
    """Every node with a plugin has a complete pool, and no slice is left of a node or plugin that is gone."""
    found, nodes, working = _slices(facts), set(_names(facts)), _working(facts)
    findings = [
        *_missing(found, working),
        *_incomplete(found),
        *_unlabelled(found, working),
        *(
            _stale(one, "does not exist")
            for one in found
            if one.spec.node_name and one.spec.node_name not in nodes
        ),
    ]
    serving = {driver: _working(facts, driver) for driver in {one.spec.driver for one in found}}
    findings += [
        _stale(one, "has no node plugin that works")
        for one in found
        if (there := serving[one.spec.driver]) is not None and one.spec.node_name in nodes - there
    ]
    yield from findings
    if not findings:
        count = sum(len(one.spec.devices) for one in found)
        yield ok(f"{len(found)} slices with {count} {'device' if count == 1 else 'devices'}")


def _working(facts: Facts, driver: str = "") -> set[str] | None:
    """Nodes on which the plugin is ready, for that driver if one is named; None if it does not run in pods here. A
    driver's may be another vendor's."""
    found = [one for one in daemon_sets(facts) if not driver or _serves(one, driver)]
    if not found:
        return None
    pods = [pod for daemon_set in found for pod in pods_of(daemon_set, facts.all(RAW_PODS))]
    return {node_of(pod) for pod in pods if ready(pod)}


def _serves(daemon_set: Body, driver: str) -> bool:
    """Whether the DaemonSet mounts the driver's folder, or that of all plugins."""
    return any(PurePosixPath(path).name in (driver, _PLUGINS) for path in host_paths(daemon_set).values())


def _missing(found: Sequence[ResourceSlice], working: set[str] | None) -> Iterator[Finding]:
    published = {one.spec.node_name for one in found}
    for node in sorted((working or set()) - published):
        yield error(
            f"the node plugin of node {node} publishes no ResourceSlice, so the node is no candidate",
            "see the plugin's log for `devices are not published`, and whether its account may write slices",
        )


def _incomplete(found: Sequence[ResourceSlice]) -> Iterator[Finding]:
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for one in found:
        pools.setdefault((one.spec.driver, one.spec.pool.name), []).append(one)
    for (driver, pool), parts in sorted(pools.items()):
        newest = max(part.spec.pool.generation for part in parts)
        current = [part for part in parts if part.spec.pool.generation == newest]
        wanted = current[0].spec.pool.resource_slice_count
        if len(current) < wanted:
            yield warning(
                f"pool {pool} of driver {driver} is not complete: {len(current)} of {wanted} slices",
                "wait a moment; if it stays incomplete, restart the node's plugin",
            )


def _unlabelled(found: Sequence[ResourceSlice], working: set[str] | None) -> Iterator[Finding]:
    """Of plugins that run here: Parley's own would set the label."""
    without: dict[str, set[str]] = {}
    for one in found:
        if PUBLISHED_BY_LABEL not in one.metadata.labels and one.spec.node_name in (working or ()):
            without.setdefault(one.spec.driver, set()).add(one.spec.node_name)
    for driver, nodes in sorted(without.items()):
        yield warning(
            f"slices of driver {driver} on {noun_for(len(nodes), 'node')} {listed(sorted(nodes))} have no label "
            f"{PUBLISHED_BY_LABEL}, so they do not show where the driver does not run",
            "if parley-kubelet publishes them, grant its account the verb publish on "
            f"resourceclaims.parley.dev/driver with the resource name {driver}",
        )


def _stale(one: ResourceSlice, why: str) -> Finding:
    return warning(
        f"is left over from node {one.spec.node_name}, which {why}: its devices still appear to exist",
        f"if the node's plugin does not come back, kubectl delete resourceslice {one.metadata.name}",
        f"ResourceSlice {one.metadata.name}",
    )
