"""A pod's effective resource requests, also while it is resized. Pure.

Source: k8s.io/component-helpers/resource of Kubernetes 1.37, as the scheduler calls it.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from parley.api.builtin import Container, Pod, PodSpec, Quantity, ResourceRequirements
from parley.api.quantity import thousandths

Amounts = Mapping[str, int]
"""Amounts by resource name, in thousandths (so that 250m of a CPU is 250)."""


MAX_RESOURCES: Final = 256
"""The most different resources that a pod may request."""


def few_resources(requests: Amounts) -> Amounts:
    """The requests; if there are too many, the first `MAX_RESOURCES` + 1, cpu, memory and the like among them."""
    if len(requests) <= MAX_RESOURCES:
        return requests
    names = sorted(requests, key=lambda name: ("/" in name or name.startswith("hugepages-"), name))
    return {name: requests[name] for name in islice(names, MAX_RESOURCES + 1)}


def declared_resources(spec: PodSpec) -> Iterator[ResourceRequirements]:
    """The `resources` fields of a pod: those of each container, and the pod-level one."""
    yield from (container.resources for container in (*spec.init_containers, *spec.containers))
    if spec.resources is not None:
        yield spec.resources


def amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Quantities in thousandths, rounded up."""
    return {name: thousandths(value) for name, value in quantities.items()}


def requested(pod: Pod) -> dict[str, int]:
    """The pod's effective requests, as k8s.io/component-helpers/resource.PodRequests computes them.

    The sum over containers and sidecars, or what the largest init container needs with the sidecars that
    started before it; pod-level requests take precedence; overhead is added. While the pod is resized, the maximum
    of its spec, what its node has allocated, and what its containers have. Amounts of zero are left out.
    """
    total = _all_containers(pod, _requests)
    level = amounts(pod.spec.resources.requests) if pod.spec.resources is not None else {}
    if is_resized(pod):
        if _resize_is_infeasible(pod):
            total, level = {}, {}
        for requests in _status_requests(pod):
            _raise_to(total, _all_containers(pod, requests))
        if pod.spec.resources is not None:
            _raise_to(level, amounts(pod.status.allocated_resources or {}))
            _raise_to(level, amounts(pod.status.resources.requests if pod.status.resources else {}))
    total.update(level)
    _add(total, amounts(pod.spec.overhead))
    return {name: amount for name, amount in total.items() if amount}


def _status_requests(pod: Pod) -> tuple[Callable[[Container], Amounts], Callable[[Container], Amounts]]:
    """Two functions of a container, read from the pod's status: what it was admitted with, and what it has."""
    statuses = {s.name: s for s in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    infeasible = _resize_is_infeasible(pod)

    def allocated(container: Container) -> Amounts:
        status = statuses.get(container.name)
        if status is not None and status.allocated_resources is not None:
            return amounts(status.allocated_resources)
        return {} if infeasible else _requests(container)

    def actuated(container: Container) -> Amounts:
        status = statuses.get(container.name)
        if status is not None and status.resources is not None and status.resources.requests:
            return amounts(status.resources.requests)
        return allocated(container)

    return allocated, actuated


def is_resized(pod: Pod) -> bool:
    """Whether the node has allocated or actuated other amounts than the pod's spec requests."""
    spec = {c.name: c.resources.requests for c in (*pod.spec.init_containers, *pod.spec.containers)}
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    if any(_differ(spec.get(s.name, {}), s.allocated_resources, s.resources) for s in statuses):
        return True
    level = pod.spec.resources
    return level is not None and _differ(level.requests, pod.status.allocated_resources, pod.status.resources)


def _differ(
    spec: Mapping[str, Quantity], allocated: Mapping[str, Quantity] | None, actuated: ResourceRequirements | None
) -> bool:
    if allocated is not None and allocated != spec:
        return True
    return actuated is not None and bool(actuated.requests) and actuated.requests != spec


def _resize_is_infeasible(pod: Pod) -> bool:
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)


def _all_containers(pod: Pod, requests: Callable[[Container], Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(total, requests(container))
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container in pod.spec.init_containers:
        own = requests(container)  # resources that it does not name are covered by the sum over all sidecars
        _raise_to(largest, {name: amount + sidecars.get(name, 0) for name, amount in own.items()})
        if container.restart_policy == "Always":
            _add(sidecars, own)
    _add(total, sidecars)
    _raise_to(total, largest)
    return total


def _requests(container: Container) -> dict[str, int]:
    return amounts({**container.resources.limits, **container.resources.requests})


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], minimum: Amounts) -> None:
    for name, amount in minimum.items():
        total[name] = max(total.get(name, 0), amount)
