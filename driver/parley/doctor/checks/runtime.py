"""Checks of nodes' container runtimes, whether they add CDI devices, and of the plugin's folders, whether they are
the kubelet's."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from parley.api.versions import Version, parsed
from parley.api.wording import listed, noun_for
from parley.doctor.checks.nodes import daemon_sets
from parley.doctor.facts import RAW_NODES, Facts
from parley.doctor.findings import Finding, error, ok, warning
from parley.doctor.kinds import DAEMON_SETS, Body
from parley.doctor.workloads import host_paths, option

KUBELET = "/var/lib/kubelet"
_REGISTRY = "plugins_registry"
_DISTRIBUTIONS: Mapping[str, str] = {
    "microk8s.io/cluster": "/var/snap/microk8s/common/var/lib/kubelet",
    "node.k0sproject.io/role": "/var/lib/k0s/kubelet",
}
"""The kubelet's folder where a distribution has one of its own, by a label that it gives its nodes."""

_RUNTIME = re.compile(r"^(?P<name>[a-z-]+)://(?P<version>.*)$")


def cdi(facts: Facts) -> Iterator[Finding]:
    """By the versions that nodes tell: containerd from 2.0 and CRI-O from 1.23 on read CDI files by default."""
    by_version: dict[str, list[str]] = {}
    for node in facts.all(RAW_NODES):
        info = (node.get("status") or {}).get("nodeInfo") or {}
        by_version.setdefault(info.get("containerRuntimeVersion", ""), []).append(node["metadata"]["name"])
    findings = [finding for text, nodes in sorted(by_version.items()) if (finding := _runtime(text, nodes))]
    yield from findings
    if not findings:
        yield ok(f"{listed(sorted(by_version)) or 'no node'}: CDI needs no setting")


def _runtime(text: str, nodes: list[str]) -> Finding | None:
    where = f"{noun_for(len(nodes), 'node')} {listed(nodes)}"
    found = _RUNTIME.match(text)
    version = parsed(found["version"]) if found else None
    sure = "make sure that it reads CDI files in /var/run/cdi"
    if found is None or version is None:
        return warning(f"{where}: the container runtime {text!r} is not known", sure)
    if found["name"] == "containerd":
        return _containerd(text, version, where)
    if found["name"] != "cri-o":
        return warning(f"{where}: {text} is not tested", sure)
    return error(f"{where}: {text} does not know CDI", "update CRI-O") if version < (1, 23) else None


def _containerd(text: str, version: Version, where: str) -> Finding | None:
    if version < (1, 7):
        return error(f"{where}: {text} does not know CDI", "update containerd to 2.0 or later")
    if version < (2, 0):
        return warning(
            f"{where}: {text} reads CDI files only if that is enabled",
            "set enable_cdi = true in its configuration; parley-kubelet doctor on the node checks whether it is",
        )
    return None


def folders(facts: Facts) -> Iterator[Finding]:
    """The DaemonSet mounts the folder in which these nodes' kubelet looks for plugins, as far as that shows."""
    found = daemon_sets(facts)
    for daemon_set in found:
        about = f"DaemonSet {facts.namespace}/{daemon_set['metadata']['name']}"
        mounted = _registry(daemon_set)
        findings = [*_distribution(facts, mounted), *_others(facts, daemon_set, mounted), *_inside(daemon_set)]
        for finding in findings:
            yield Finding(finding.severity, finding.text, finding.remedy, about)
        if not findings:
            yield ok(f"looks for the kubelet in {mounted or KUBELET}, and nothing contradicts that", about)
    if not found:
        yield ok("no DaemonSet of the node plugin mounts any")


def _registry(daemon_set: Body) -> str:
    """The kubelet's folder, derived from its registration folder; "" if that is not mounted."""
    paths = [path for path in host_paths(daemon_set).values() if PurePosixPath(path).name == _REGISTRY]
    return str(PurePosixPath(paths[0]).parent) if paths else ""


def _distribution(facts: Facts, mounted: str) -> Iterator[Finding]:
    for label, folder in _DISTRIBUTIONS.items():
        nodes = [
            node["metadata"]["name"]
            for node in facts.all(RAW_NODES)
            if label in (node["metadata"].get("labels") or {}) and mounted != folder
        ]
        if nodes:
            yield error(
                f"mounts {mounted or 'no folder of the kubelet'}, but the kubelet of "
                f"{noun_for(len(nodes), 'node')} {listed(nodes)} is in {folder}",
                f"mount {folder}/{_REGISTRY} and {folder}/plugins there (docs/install.md)",
            )


def _others(facts: Facts, own: Body, mounted: str) -> Iterator[Finding]:
    """The kubelet's folder that other vendors' plugins (CSI, DRA) of this cluster use."""
    elsewhere: dict[str, list[str]] = {}
    for other in facts.all(DAEMON_SETS):
        folder = _registry(other)
        if other["metadata"] != own["metadata"] and folder and folder != mounted:
            elsewhere.setdefault(folder, []).append(
                f"{other['metadata']['namespace']}/{other['metadata']['name']}"
            )
    for folder, names in sorted(elsewhere.items()):
        yield warning(
            f"looks for the kubelet in {mounted or 'no folder'}, DaemonSet {listed(names)} in {folder}",
            f"if the kubelet's folder is {folder}, mount that one (docs/install.md)",
        )


def _inside(daemon_set: Body) -> Iterator[Finding]:
    """The plugin looks where the folders are mounted."""
    paths = host_paths(daemon_set)
    mounted = {
        mount["name"]
        for container in daemon_set["spec"]["template"]["spec"]["containers"]
        for mount in container.get("volumeMounts") or ()
    }
    there = {PurePosixPath(path) for volume, path in paths.items() if volume in mounted}
    cdi_folder = option(daemon_set, "--cdi-dir")
    found = {
        "the kubelet's plugins_registry": any(path.name == _REGISTRY for path in there),
        "the CDI folder": any(path.name == "cdi" or path == PurePosixPath(cdi_folder or "/") for path in there),
    }
    for what, is_there in found.items():
        if not is_there:
            yield error(
                f"does not mount {what}",
                "install it again (helm upgrade or, without helm, deploy/default), or add the mount",
            )
