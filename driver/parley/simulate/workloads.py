"""Replaces Deployments, StatefulSets, DaemonSets and Jobs by the pods that their controllers would create. No I/O.

Existing pods are counted, so that a dump may contain workloads with their pods; terminal pods are counted only for
Jobs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from parley.api.builtin import LabelSelector, ObjectMeta, Pod, Struct
from parley.api.resources import NODES, PODS, Resource
from parley.negotiation.fit import needs_of, selected, untolerated_taint
from parley.simulate.objects import Manifest

Body = Mapping[str, Any]


class Ordinals(Struct, frozen=True):
    """The first ordinal of a StatefulSet's pods."""

    start: int = 0


class WorkloadSpec(Struct, frozen=True):
    """The spec fields of all four kinds that are read here."""

    template: Pod
    selector: LabelSelector | None = None
    replicas: int | None = None
    ordinals: Ordinals | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class WorkloadStatus(Struct, frozen=True):
    """A Job's progress."""

    succeeded: int | None = None


class Workload(Struct, frozen=True):
    """A workload with the fields that are read here; its pods are made from the JSON."""

    spec: WorkloadSpec
    metadata: ObjectMeta = ObjectMeta()
    status: WorkloadStatus = WorkloadStatus()


def _kind(group: str, plural: str, kind: str) -> Resource[Workload]:
    return Resource(group, "v1", plural, kind, True, Workload)


DEPLOYMENTS = _kind("apps", "deployments", "Deployment")
STATEFUL_SETS = _kind("apps", "statefulsets", "StatefulSet")
DAEMON_SETS = _kind("apps", "daemonsets", "DaemonSet")
JOBS = _kind("batch", "jobs", "Job")
WORKLOADS: tuple[Resource[Any], ...] = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, JOBS)

_NUMBERS = ("replicas", "parallelism", "completions")
_ENDED = ("Succeeded", "Failed")
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""The taints that every pod of a DaemonSet tolerates (pkg/controller/daemon/util, 1.37)."""


def expanded(manifests: Sequence[Manifest]) -> list[Manifest]:
    """The objects, with the missing pods of workloads in place of these."""
    pods = [manifest for manifest in manifests if manifest.resource == PODS]
    nodes = [manifest for manifest in manifests if manifest.resource == NODES]
    made = [
        pod
        for manifest in manifests
        if manifest.resource in WORKLOADS
        for pod in _missing(manifest, [one for one in pods if _is_of(manifest, one)], nodes)
    ]
    return [manifest for manifest in manifests if manifest.resource not in WORKLOADS] + made


def workload_fault(resource: Resource[Any], body: Body) -> str:
    """The API server's error for a negative number of pods, or a selector that does not match the template; "" if
    there is none."""
    if resource not in WORKLOADS:
        return ""
    spec = body.get("spec") or {}
    for field in _NUMBERS:
        if (number := _number(spec, field, 0)) < 0:
            return f"spec.{field}: Invalid value: {number}: must be greater than or equal to 0"
    if resource == JOBS:
        return ""  # the API server sets its selector
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = template_of(body).get("metadata", {}).get("labels") or {}
    if not wanted and not (spec.get("selector") or {}).get("matchExpressions"):
        return "spec.selector: Required value"
    if wanted.items() <= labels.items():
        return ""
    shown = orjson.dumps(labels).decode()
    return f"spec.template.metadata.labels: Invalid value: {shown}: `selector` does not match template `labels`"


def _number(of: Body, field: str, default: int) -> int:
    """The field's number; `default` if it is missing or null."""
    given = of.get(field)
    return default if given is None else int(given)


def template_of(body: Body) -> dict[str, Any]:
    """The workload's pod template."""
    template: dict[str, Any] = body.get("spec", {}).get("template") or {}
    return template


def pod_of(workload: Manifest, name: str) -> Manifest:
    """A pod of the workload."""
    template = template_of(workload.body)
    meta = {**(template.get("metadata") or {}), "name": name, "namespace": workload.namespace}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template.get("spec") or {}}
    return Manifest(workload.source, PODS, workload.namespace, name, body)


def _is_of(workload: Manifest, pod: Manifest) -> bool:
    """Whether the workload's controller would count the pod."""
    labels = template_of(workload.body).get("metadata", {}).get("labels") or {}
    selector = (workload.body["spec"].get("selector") or {}).get("matchLabels") or labels
    own = pod.body["metadata"].get("labels") or {}
    ended = (pod.body.get("status") or {}).get("phase") in _ENDED
    return bool(selector) and pod.namespace == workload.namespace and selector.items() <= own.items() and not ended


def _missing(workload: Manifest, there: Sequence[Manifest], nodes: Sequence[Manifest]) -> Iterator[Manifest]:
    if workload.resource == DAEMON_SETS:
        yield from _on_nodes(workload, there, nodes)
        return
    spec, known = workload.body["spec"], {pod.name for pod in there}
    if workload.resource == STATEFUL_SETS:
        first = _number(spec.get("ordinals") or {}, "start", 0)
        names = [f"{workload.name}-{first + number}" for number in range(_number(spec, "replicas", 1))]
        yield from (pod_of(workload, name) for name in names if name not in known)
        return
    count = _wanted(workload) - len(there)
    yield from (pod_of(workload, f"{workload.name}-{number + 1}") for number in range(count))


def _wanted(workload: Manifest) -> int:
    """The number of active pods that a Deployment or Job should have now."""
    spec = workload.body["spec"]
    if workload.resource == DEPLOYMENTS:
        return _number(spec, "replicas", 1)
    if spec.get("suspend"):
        return 0
    parallel = _number(spec, "parallelism", 1)
    done = _number(workload.body.get("status") or {}, "succeeded", 0)
    return max(0, min(parallel, _number(spec, "completions", parallel) - done))


def _on_nodes(workload: Manifest, there: Sequence[Manifest], nodes: Sequence[Manifest]) -> Iterator[Manifest]:
    """The missing pods of a DaemonSet: one for each node that its node selector, affinity and tolerations
    allow."""
    served = {pod.body["spec"].get("nodeName") for pod in there}
    for node in nodes:
        pod = _pinned(pod_of(workload, f"{workload.name}-{node.name}"), node.name)
        needs = needs_of(PODS.decode(orjson.dumps(_own(pod))))
        known = NODES.decode(orjson.dumps({**node.body, "status": {}}))
        if node.name not in served and selected(needs, known) and not untolerated_taint(needs, known):
            yield pod


def _own(pod: Manifest) -> Body:
    return {key: pod.body[key] for key in ("metadata", "spec")}


def _pinned(pod: Manifest, node: str) -> Manifest:
    """The pod as the DaemonSet controller creates it: with affinity to that node alone, and its tolerations."""
    spec = dict(pod.body["spec"])
    affinity = dict(spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    given: Sequence[Body] = required.get("nodeSelectorTerms") or ({},)
    terms = [{**term, "matchFields": fields} for term in given]
    of_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    tolerations = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    spec["affinity"] = {**affinity, "nodeAffinity": of_nodes}
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *tolerations]
    return replace(pod, body={**pod.body, "spec": spec})
