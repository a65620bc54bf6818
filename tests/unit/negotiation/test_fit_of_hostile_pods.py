"""Whatever a tenant writes into a pod, one look at one node takes no time that others would notice.

The pods here are about as large as the API server stores them: 1.5 MB.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.effort import cpu_seconds

from parley.api.builtin import Node, Pod
from parley.api.meta import MAX_COMPARED, MAX_VALUES
from parley.negotiation.fit import MAX_VOLUMES, misfit, needs_of
from parley.negotiation.requests import amounts, requested

NODE = msgspec.convert(
    {
        "metadata": {"name": "a", "labels": {"zone": "1"}},
        "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
    },
    Node,
)
LOOP_LAG = 0.25
"""Seconds that one look may keep the event loop from others. These pods take up to 0.09 on an idle machine."""

ROOM = amounts({"cpu": "4", "memory": "8Gi", "pods": "2"})


def pod(**spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)


def container(number: int, **more: Any) -> dict[str, Any]:
    return {"name": f"c{number}", "resources": {"requests": {"cpu": "1m", f"x.dev/r{number}": "1"}}, **more}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def needs(values: list[str]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}


HOSTILE = {
    "containers": pod(containers=[container(n) for n in range(8_000)]),
    "sidecars": pod(initContainers=[container(n, restartPolicy="Always") for n in range(8_000)]),
    "numbers": pod(containers=[{"resources": {"requests": {f"x.dev/{n}": "9" * 10_000}}} for n in range(150)]),
    "exponents": pod(containers=[{"resources": {"requests": {"cpu": "1e1000000000", "memory": "1e-1000000000"}}}]),
    "zeros": pod(containers=[{"resources": {"requests": {f"x.dev/{n}": "0" for n in range(40_000)}}}]),
    "tolerations": pod(tolerations=[{"key": f"gpu{n}", "operator": "Exists"} for n in range(30_000)]),
    "terms": pod(affinity=affinity(*({"matchFields": []} for _ in range(30_000)))),
    "requirements": pod(affinity=affinity(*(needs(["2"]) for _ in range(15_000)))),
    "values": pod(affinity=affinity(needs([f"v{n}" for n in range(100_000)]))),
    "selector": pod(nodeSelector={f"k{n}": "v" for n in range(50_000)}),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_pod_is_read_and_compared_with_a_node_in_no_time(hostile: Pod) -> None:
    wanted = needs_of(hostile)

    assert cpu_seconds(lambda: requested(hostile)) < LOOP_LAG
    assert cpu_seconds(lambda: needs_of(hostile)) < LOOP_LAG
    assert cpu_seconds(lambda: misfit(wanted, NODE, ROOM, {}, 0)) < LOOP_LAG / 100


def test_more_tolerations_and_requirements_than_are_compared_are_told() -> None:
    one_too_many = pod(tolerations=[{"operator": "Exists"}] * (MAX_COMPARED - 1), affinity=affinity(needs(["1"])))

    assert misfit(needs_of(one_too_many), NODE, ROOM, {}, 0) == (
        "is not considered: the pod has 257 tolerations, node selector terms and requirements, and Parley "
        "evaluates at most 256 with a node"
    )
    assert misfit(needs_of(pod(tolerations=[{"operator": "Exists"}] * MAX_COMPARED)), NODE, ROOM, {}, 0) == ""
    selective = pod(tolerations=[{"operator": "Exists"}] * MAX_COMPARED, nodeSelector={"zone": "1"})
    assert "the pod has 257 tolerations" in misfit(needs_of(selective), NODE, ROOM, {}, 0)


def test_more_volumes_than_are_compared_are_told() -> None:
    def mounting(number: int) -> Pod:
        volumes: list[dict[str, Any]] = [{"name": f"v{n}", "ephemeral": {}} for n in range(number)]
        return pod(volumes=[*volumes, {"name": "empty"}], tolerations=[{"operator": "Exists"}])

    assert misfit(needs_of(mounting(MAX_VOLUMES + 1)), NODE, ROOM, {}, 0) == (
        "is not considered: the pod has 257 volumes with a PersistentVolumeClaim, and Parley evaluates at most "
        "256 with a node"
    )
    assert misfit(needs_of(mounting(MAX_VOLUMES)), NODE, ROOM, {}, 0) == ""


def test_more_values_than_are_compared_are_told() -> None:
    values = ["1", *(f"v{n}" for n in range(MAX_VALUES))]
    tolerant = [{"operator": "Exists"}]

    assert misfit(needs_of(pod(tolerations=tolerant, affinity=affinity(needs(values)))), NODE, ROOM, {}, 0) == (
        "is not considered: the pod's node affinity names 4097 values, and Parley evaluates at most 4096 with a "
        "node"
    )
    assert (
        misfit(needs_of(pod(tolerations=tolerant, affinity=affinity(needs(values[:-1])))), NODE, ROOM, {}, 0) == ""
    )


@pytest.mark.parametrize(
    ("value", "bound", "holds"),
    [
        ("5", "4", True),
        ("+5", "-4", True),
        ("5", "9" * 253, False),
        ("٥", "4", False),
        ("5_0", "4", False),
        (" 5", "4", False),
        ("9223372036854775808", "4", False),
        ("9223372036854775807", "4", True),
    ],
)
def test_greater_than_reads_integers_as_the_scheduler_does(value: str, bound: str, holds: bool) -> None:
    node = msgspec.convert({"metadata": {"name": "a", "labels": {"level": value}}}, Node)
    term = {"matchExpressions": [{"key": "level", "operator": "Gt", "values": [bound]}]}

    assert (misfit(needs_of(pod(affinity=affinity(term))), node, ROOM, {}, 0) == "") is holds


amount = st.integers(0, 9)
init_containers = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abc"), amount), st.sampled_from(["", "Always"])), max_size=5
)


@given(st.dictionaries(st.sampled_from("abc"), amount), init_containers)
def test_requests_are_the_largest_sum_at_any_moment_of_the_pods_life(
    main: dict[str, int], inits: list[tuple[dict[str, int], str]]
) -> None:
    started: list[dict[str, int]] = []
    moments: list[list[dict[str, int]]] = []
    for own, policy in inits:
        moments.append([*started, own])
        if policy:
            started.append(own)
    moments.append([*started, main])

    found = requested(
        pod(
            containers=[{"resources": {"requests": main}}],
            initContainers=[{"resources": {"requests": own}, "restartPolicy": policy} for own, policy in inits],
        )
    )

    for name in "abc":
        most = max(sum(one.get(name, 0) for one in running) for running in moments)
        assert found.get(name, 0) == most * 1000
