"""What else there is in a large cluster: 20,000 running pods of the usual size, 5,000 of them with a claim, and
500 pods that wait for devices that no node has, with 300 different requests.

The running pods are created bound, so that no scheduler has to place them; those with a claim get it allocated
where they are, like any pod that others bound. Nobody runs them.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks import objects
from benchmarks.objects import DEVICE, NEVER, Body
from benchmarks.stage import Stage
from parley.api.resources import BUILTIN_TEMPLATES, POD_SCHEDULINGS, PODS, TEMPLATES

RUNNING = 20_000
CLAIMS = 5_000
WAITING = 500
REQUESTS = 300
NAMESPACE = "large"
"""Of the running pods."""

_WAITING_NAMESPACE = "large-waiting"
_LIMIT = 900.0


async def run(stage: Stage) -> None:
    """The running pods are there, and their claims are allocated. Raises TimeoutError."""
    await stage.api.create_namespace(NAMESPACE)
    await stage.api.request("POST", TEMPLATES.path(NAMESPACE), objects.template(DEVICE))
    await stage.until(partial(stage.api.has, BUILTIN_TEMPLATES, NAMESPACE, 1), "the template has a mirror", _LIMIT)
    await stage.api.create_all(PODS.path(NAMESPACE), _running(stage.nodes))
    published = partial(stage.api.has, POD_SCHEDULINGS, NAMESPACE, CLAIMS)
    await stage.until(published, f"{CLAIMS} claims are allocated", _LIMIT)


async def wait(stage: Stage) -> None:
    """The waiting pods are there, and each has its PodScheduling. Raises TimeoutError."""
    await stage.api.create_namespace(_WAITING_NAMESPACE)
    await stage.api.create_all(TEMPLATES.path(_WAITING_NAMESPACE), map(_template, range(REQUESTS)))
    mirrored = partial(stage.api.has, BUILTIN_TEMPLATES, _WAITING_NAMESPACE, REQUESTS)
    await stage.until(mirrored, "the templates have mirrors", _LIMIT)
    pods = (objects.pod(number, [replace(NEVER, name=_name(number))]) for number in range(WAITING))
    await stage.api.create_all(PODS.path(_WAITING_NAMESPACE), pods)
    published = partial(stage.api.has, POD_SCHEDULINGS, _WAITING_NAMESPACE, WAITING)
    await stage.until(published, f"{WAITING} pods wait", _LIMIT)


async def end_running(stage: Stage, number: int) -> None:
    """That running pod ends, as its kubelet would report it, and is deleted."""
    path = PODS.path(NAMESPACE, objects.pod_name(number))
    await stage.api.request("PATCH", f"{path}/status", objects.FINISHED)
    await stage.api.request("DELETE", f"{path}?gracePeriodSeconds=0")


def _name(number: int) -> str:
    return f"request-{number % REQUESTS}"


def _template(number: int) -> Body:
    """For a device of a model of its own: its pods wait for something else than those of other templates."""
    parameters = {**NEVER.parameters, "model": f"none-such-{number}"}
    spec = {"resourceClassName": NEVER.name, "parameters": parameters}
    return {**objects.template(NEVER), "metadata": {"name": _name(number)}, "spec": {"spec": spec}}


def _running(nodes: list[str]) -> Iterator[Body]:
    """Pods of the size that they have in clusters: about 5 KB as JSON, most of which Parley does not read."""
    for number in range(RUNNING):
        pod = objects.pod(number, [DEVICE] if number < CLAIMS else [])
        (container,) = pod["spec"]["containers"]
        body = {**container, **_DETAILS}
        metadata = {**pod["metadata"], "labels": _LABELS, "annotations": _ANNOTATIONS}
        yield {
            **pod,
            "metadata": metadata,
            "spec": {**pod["spec"], "nodeName": nodes[number % len(nodes)], "containers": [body]},
        }


_LABELS = {f"app.kubernetes.io/{name}": f"a-usual-{name}" for name in ("name", "instance", "component", "part-of")}
_ANNOTATIONS = {f"example.com/{name}": name * 20 for name in ("checksum", "configuration", "restarted-at")}
_PROBE = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3}
_DETAILS = {
    "env": [{"name": f"SETTING_{number}", "value": f"the value of setting {number}"} for number in range(25)],
    "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
}
