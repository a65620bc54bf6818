"""Checks of the API server: its version and the kubelets', built-in DRA, and the DeviceClass that must not
exist."""

from collections.abc import Iterator, Mapping

from parley.api.names import DEVICE_CLASS
from parley.api.resources import BUILTIN_CLAIMS, DEVICE_CLASSES
from parley.api.versions import Version, parsed, written
from parley.api.wording import listed
from parley.doctor.facts import RAW_NODES, Facts, NotReadable, Unreadable
from parley.doctor.findings import Finding, error, ok, warning
from parley.doctor.kinds import Body

OLDEST: Version = (1, 36)
NEWEST_TESTED: Version = (1, 37)
KUBELETS_BEHIND = 3
"""So many minor versions a kubelet may be older than its API server (Kubernetes' version skew policy)."""
OLDEST_KUBELET: Version = (1, 34)
"""The first that serves plugins of dynamic resource allocation in version v1."""


def api_server(facts: Facts) -> Iterator[Finding]:
    """The API server's version is supported."""
    text = _version(facts)
    version = parsed(text)
    if version is None:
        yield warning(
            f"its version {text!r} is not understood", f"make sure that it is {written(OLDEST)} or later"
        )
    elif version < OLDEST:
        yield error(
            f"Kubernetes {text} is older than {written(OLDEST)}",
            f"update the control plane to {written(OLDEST)} or later: older versions have no permission for "
            "claims' bindings",
        )
    elif version > NEWEST_TESTED:
        yield warning(
            f"Kubernetes {text} is newer than {written(NEWEST_TESTED)}, the newest that Parley {facts.program} "
            "was tested with",
            "check whether there is a newer Parley",
        )
    else:
        yield ok(f"Kubernetes {text}")


def _version(facts: Facts) -> str:
    if isinstance(facts.version, NotReadable):
        raise Unreadable(facts.version.why, facts.version.remedy or "check whether /version can be read")
    return str(facts.version.get("gitVersion", ""))


def kubelets(facts: Facts) -> Iterator[Finding]:
    """Kubelets are not newer than the API server, nor older by more than Kubernetes supports."""
    server = parsed(_version(facts))
    nodes = facts.all(RAW_NODES)
    if server is None:
        return
    wrong: dict[str, list[str]] = {}
    for node in nodes:
        text = kubelet_version(node)
        version = parsed(text)
        if version is None or version > server or version < _oldest_kubelet(server):
            wrong.setdefault(text, []).append(node["metadata"]["name"])
    for text, names in sorted(wrong.items()):
        yield _skewed(text, names, server)
    if not wrong:
        yield ok(f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}, each with a kubelet that fits")


def _skewed(text: str, names: list[str], server: Version) -> Finding:
    where = f"{'nodes' if len(names) > 1 else 'node'} {listed(names)}"
    if not text:
        return warning(
            f"{where}: the kubelet has not reported its version", "check whether the kubelet runs there"
        )
    version = parsed(text)
    if version is not None and version > server:
        remedy = "update the control plane first: a kubelet must not be newer than it"
    else:
        remedy = f"update it to {written(_oldest_kubelet(server))} or later"
    return error(f"{where}: kubelet {text} does not fit API server {written(server)}", remedy)


def _oldest_kubelet(server: Version) -> Version:
    return max((server[0], server[1] - KUBELETS_BEHIND), OLDEST_KUBELET)


def kubelet_version(node: Body) -> str:
    """The kubelet's version as the node reports it; "" if it does not."""
    info: Mapping[str, str] = (node.get("status") or {}).get("nodeInfo") or {}
    return info.get("kubeletVersion", "")


def dra(facts: Facts) -> Iterator[Finding]:
    """The API server serves the API of mirrors and slices."""
    if facts.served(BUILTIN_CLAIMS):
        yield ok("resource.k8s.io/v1 is served")
        return
    yield error(
        "the API server does not serve resource.k8s.io/v1",
        "switch it on: start it with --runtime-config=resource.k8s.io/v1=true, and without "
        "--feature-gates=DynamicResourceAllocation=false",
    )


def device_class(facts: Facts) -> Iterator[Finding]:
    """The DeviceClass that mirrors name does not exist: a scheduler would allocate by itself."""
    if any(found.metadata.name == DEVICE_CLASS for found in facts.all(DEVICE_CLASSES)):
        yield error(
            "it exists, so schedulers bind pods before Parley has negotiated for them",
            f"kubectl delete deviceclass {DEVICE_CLASS}",
            f"DeviceClass {DEVICE_CLASS}",
        )
        return
    yield ok(f"{DEVICE_CLASS} does not exist, as it must not")
