"""How much of a node a pod counts for: its effective requests, also while it is resized. Pure.

Source: k8s.io/component-helpers/resource of Kubernetes 1.37, as the scheduler calls it.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from parley.api.builtin import Container, Pod, PodSpec, Quantity, ResourceRequirements
from parley.api.quantity import thousandths

Amounts = Mapping[str, int]
"""By resource name, in thousandths (so that 250m of a CPU is 250)."""


MAX_RESOURCES: Final = 256
"""So many different resources may a pod request."""


def few_resources(requests: Amounts) -> Amounts:
    """All of them if they are not too many; otherwise one more than may be, with cpu, memory and the like."""
    if len(requests) <= MAX_RESOURCES:
        return requests
    in_order = sorted(requests.items(), key=lambda one: ("/" in one[0] or one[0].startswith("hugepages-"), one[0]))
    return dict(islice(in_order, MAX_RESOURCES + 1))


def stated(spec: PodSpec) -> Iterator[ResourceRequirements]:
    """Where a pod says what it requests: for each container, and for all of it."""
    yield from (one.resources for one in (*spec.init_containers, *spec.containers))
    if spec.resources is not None:
        yield spec.resources


def amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Quantities in thousandths, rounded up."""
    return {name: thousandths(value) for name, value in quantities.items()}


def requested(pod: Pod) -> dict[str, int]:
    """The pod's effective requests, as k8s.io/component-helpers/resource.PodRequests computes them.

    The sum over containers and sidecars, or what the largest init container needs with the sidecars that
    started before it; pod-level requests take precedence; overhead is added. While the pod is resized, the most of
    what its spec says, what its node has allocated, and what its containers have. What comes to zero is left out.
    """
    total = _all_containers(pod, _requests)
    level = amounts(pod.spec.resources.requests) if pod.spec.resources is not None else {}
    if is_resized(pod):
        if _resize_is_infeasible(pod):
            total, level = {}, {}
        for view in _in_statuses(pod):
            _raise(total, _all_containers(pod, view))
        if pod.spec.resources is not None:
            _raise(level, amounts(pod.status.allocated_resources or {}))
            _raise(level, amounts(pod.status.resources.requests if pod.status.resources else {}))
    total.update(level)
    _add(total, amounts(pod.spec.overhead))
    return {name: amount for name, amount in total.items() if amount}


def _in_statuses(pod: Pod) -> tuple[Callable[[Container], Amounts], Callable[[Container], Amounts]]:
    """What a container was admitted with, and what it has."""
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
    """Whether its node has, or gave, other amounts than the pod's spec says."""
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
        own = requests(container)  # what it does not name is no more now than all sidecars need in the end
        _raise(largest, {name: amount + sidecars.get(name, 0) for name, amount in own.items()})
        if container.restart_policy == "Always":
            _add(sidecars, own)
    _add(total, sidecars)
    _raise(total, largest)
    return total


def _requests(container: Container) -> dict[str, int]:
    return amounts({**container.resources.limits, **container.resources.requests})


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], least: Amounts) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)
