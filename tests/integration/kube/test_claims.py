"""The rules of built-in claims that Parley may break, and those of its own kinds."""

from typing import Any

import pytest
from tests.integration.kube.objects import (
    DRIVER,
    allocation,
    answer,
    builtin_claim,
    consumer,
    device,
    parley_allocation,
    parley_claim,
    pod,
    pod_scheduling,
)

from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIMS,
    CLASSES,
    POD_SCHEDULINGS,
    PODS,
    TEMPLATES,
)
from parley.kube.client import Client, Invalid

Status = dict[str, Any]


async def status_of_builtin(client: Client, namespace: str, status: Status) -> Status:
    changed = await client.patch(
        BUILTIN_CLAIMS.untyped(), "a", {"status": status}, namespace, subresource="status"
    )
    return dict(changed.get("status", {}))


async def status_of_ours(client: Client, namespace: str, status: Status) -> Status:
    changed = await client.patch(CLAIMS.untyped(), "a", {"status": status}, namespace, subresource="status")
    return dict(changed.get("status", {}))


def opaque(parameters: Any, **fields: Any) -> Status:
    return {"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}, **fields}


REFUSED: dict[str, tuple[Status, str]] = {
    "a reservation without an allocation": (
        {"reservedFor": [consumer("web", "uid-1")]},
        r"status\.reservedFor: Forbidden: may not be specified when `allocated` is not set",
    ),
    "a result of no request": (
        {"allocation": allocation(device(request="other"))},
        r"results\[0\]\.request: Invalid value: \"other\": must be the name of a request in the claim",
    ),
    "a device in capitals": (
        {"allocation": allocation(device("GPU-0"))},
        r"results\[0\]\.device: Invalid value: \"GPU-0\"",
    ),
    "a pool in capitals": (
        {"allocation": allocation(device(pool="Node_1"))},
        r"results\[0\]\.pool: Invalid value: \"Node_1\"",
    ),
    "too many results": (
        {"allocation": allocation(*(device(f"gpu-{number}") for number in range(33)))},
        r"status\.allocation\.devices\.results: Too (many|long)",
    ),
    "parameters that are no object": (
        {"allocation": allocation(device(), config=[opaque([1])])},
        r"config\[0\]\.opaque\.parameters: Invalid value",
    ),
    "parameters that are too long": (
        {"allocation": allocation(device(), config=[opaque({"key": "x" * 10240})])},
        r"config\[0\]\.opaque\.parameters: Too long",
    ),
    "a configuration of no request": (
        {"allocation": allocation(device(), config=[opaque({}, requests=["other"])])},
        r"config\[0\]\.requests\[0\]: Invalid value: \"other\": must be the name of a request in the claim",
    ),
    "a configuration of no source": (
        {"allocation": allocation(device(), config=[{**opaque({}), "source": ""}])},
        r"config\[0\]\.source: Required value",
    ),
    "a report on what is not allocated": (
        {
            "allocation": allocation(device()),
            "devices": [{"driver": DRIVER, "pool": "node-1", "device": "gpu-7"}],
        },
        r"status\.devices\[0\]: Invalid value: .*must be an allocated device in the claim",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_built_in_claim_refuses(client: Client, namespace: str, case: str) -> None:
    await client.create(BUILTIN_CLAIMS, builtin_claim("a"), namespace)
    status, message = REFUSED[case]

    with pytest.raises(Invalid, match=message):
        await status_of_builtin(client, namespace, status)


async def test_a_built_in_allocation_is_made_once_and_cleared_with_its_users(
    client: Client, namespace: str
) -> None:
    user = await client.create(PODS, pod("web"), namespace)
    users = [consumer("web", user.metadata.uid)]
    await client.create(BUILTIN_CLAIMS, builtin_claim("a"), namespace)

    made = {"allocation": allocation(device(), config=[opaque({"key": 1})]), "reservedFor": users}
    seen = await status_of_builtin(client, namespace, made)
    assert seen["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    assert seen["reservedFor"] == users

    immutable = r"status\.allocation: Invalid value: .*(cannot be modified once set|is immutable)"  # 1.37, 1.36
    with pytest.raises(Invalid, match=immutable):
        await status_of_builtin(client, namespace, {"allocation": {"nodeSelector": None}})
    with pytest.raises(Invalid, match=r"status\.reservedFor: Forbidden: may not be specified when"):
        await status_of_builtin(client, namespace, {"allocation": None})
    assert not await status_of_builtin(client, namespace, {"allocation": None, "reservedFor": None})


async def test_an_allocation_may_have_no_device(client: Client, namespace: str) -> None:
    await client.create(BUILTIN_CLAIMS, builtin_claim("a"), namespace)

    seen = await status_of_builtin(client, namespace, {"allocation": allocation()})

    assert "nodeSelector" in seen["allocation"]


async def test_an_allocation_may_have_several_nodes_and_binding_conditions(client: Client, namespace: str) -> None:
    await client.create(BUILTIN_CLAIMS, builtin_claim("a"), namespace)
    waiting: dict[str, Any] = {
        "bindingConditions": ["parley.dev/allocated"],
        "bindingFailureConditions": ["parley.dev/declined"],
    }
    offered = allocation(device(**waiting))
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in ("n-1", "n-2")
    ]
    offered["nodeSelector"] = {"nodeSelectorTerms": terms}

    seen = await status_of_builtin(client, namespace, {"allocation": offered})

    assert seen["allocation"]["devices"]["results"][0]["bindingConditions"] == ["parley.dev/allocated"]


async def test_two_entries_for_one_user_are_one_too_many(client: Client, namespace: str) -> None:
    await client.create(BUILTIN_CLAIMS, builtin_claim("a"), namespace)
    users = [consumer("web", "uid-1"), consumer("web", "uid-1")]

    with pytest.raises(Invalid, match=r"status\.reservedFor\[1\]: Duplicate value"):
        await status_of_builtin(client, namespace, {"allocation": allocation(device()), "reservedFor": users})


async def test_a_claim_on_its_way_out_takes_no_new_user(client: Client, namespace: str) -> None:
    body = builtin_claim("a")
    body["metadata"]["finalizers"] = ["x.dev/hold"]
    await client.create(BUILTIN_CLAIMS, body, namespace)
    await status_of_builtin(client, namespace, {"allocation": allocation(device())})
    await client.delete(BUILTIN_CLAIMS, "a", namespace)

    with pytest.raises(Invalid, match=r"status\.reservedFor: Forbidden: new entries may not be added"):
        await status_of_builtin(client, namespace, {"reservedFor": [consumer("web", "uid-1")]})


async def test_built_in_specs_are_immutable(client: Client, namespace: str) -> None:
    await client.create(BUILTIN_CLAIMS, builtin_claim("a"), namespace)
    template = {"metadata": {"name": "a"}, "spec": {"spec": builtin_claim("a")["spec"]}}
    await client.create(BUILTIN_TEMPLATES, template, namespace)
    requests = builtin_claim("a", "shareable")["spec"]

    with pytest.raises(Invalid, match=r"spec: Invalid value: .*field is immutable"):
        await client.patch(BUILTIN_CLAIMS, "a", {"spec": requests}, namespace)
    with pytest.raises(Invalid, match=r"spec: Invalid value: .*field is immutable"):
        await client.patch(BUILTIN_TEMPLATES, "a", {"spec": {"spec": requests}}, namespace)


ALLOCATED: Status = {"driverName": DRIVER, "allocation": parley_allocation()}
USED: Status = {**ALLOCATED, "reservedFor": [consumer("web", "uid-1")]}
REQUESTED: Status = {**ALLOCATED, "deallocationRequested": True}
OTHER = {**parley_allocation(), "shareable": True}

AT_SOME_TIME = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
OURS_REFUSED: dict[str, tuple[Status, Status, str]] = {
    "an allocation of no driver": (
        {},
        {"allocation": parley_allocation()},
        r"status\.driverName: Invalid value: .*driverName is required while allocation is set",
    ),
    "users of nothing": (
        {},
        {"reservedFor": [consumer("web", "uid-1")]},
        r"status\.reservedFor: Invalid value: .*reservedFor must be empty while nothing is allocated",
    ),
    "a second user of what is not shareable": (
        USED,
        {"reservedFor": [consumer("web", "uid-1"), consumer("db", "uid-2")]},
        r"status\.reservedFor: Invalid value: .*reservedFor can hold one pod only",
    ),
    "another allocation": (
        ALLOCATED,
        {"allocation": OTHER},
        r"status\.allocation: Invalid value: .*allocation cannot be changed once it is set",
    ),
    "the release of nothing": (
        {},
        {"deallocationRequested": True},
        r"status\.deallocationRequested: Invalid value: .*must be left out while nothing is allocated",
    ),
    "the release of what is used": (
        USED,
        {"deallocationRequested": True},
        r"status\.deallocationRequested: Invalid value: .*reservedFor exclude each other",
    ),
    "a new user of what is released": (
        REQUESTED,
        {"reservedFor": [consumer("web", "uid-1")]},
        r"status\.deallocationRequested: Invalid value: .*reservedFor exclude each other",
    ),
    "a release taken back": (
        REQUESTED,
        {"deallocationRequested": None},
        r"status\.deallocationRequested: Invalid value: .*can be cleared only together with allocation",
    ),
    "a condition that is neither true nor false nor unknown": (
        {},
        {"conditions": [{"type": "Ready", "status": "Maybe", "reason": "R", "message": "", **AT_SOME_TIME}]},
        r"status\.conditions\[0\]\.status: (Unsupported|Invalid) value",
    ),
}


@pytest.mark.parametrize("case", OURS_REFUSED)
async def test_a_claim_of_ours_refuses(client: Client, namespace: str, case: str) -> None:
    await client.create(CLAIMS, parley_claim("a"), namespace)
    before, patch, message = OURS_REFUSED[case]
    if before:
        await status_of_ours(client, namespace, before)

    with pytest.raises(Invalid, match=message):
        await status_of_ours(client, namespace, patch)


async def test_a_claim_of_ours_lives_from_allocation_to_release(client: Client, namespace: str) -> None:
    await client.create(CLAIMS, parley_claim("a"), namespace)

    await status_of_ours(client, namespace, USED)
    await status_of_ours(client, namespace, {"reservedFor": None, "deallocationRequested": True})
    cleared = {"driverName": None, "allocation": None, "deallocationRequested": None}

    assert await status_of_ours(client, namespace, cleared) == {}


async def test_our_specs_are_immutable(client: Client, namespace: str) -> None:
    await client.create(CLAIMS, parley_claim("a"), namespace)
    await client.create(
        TEMPLATES, {"metadata": {"name": "a"}, "spec": {"spec": {"resourceClassName": "gpu"}}}, namespace
    )

    with pytest.raises(Invalid, match="spec is immutable: to request something else, delete the claim"):
        await client.patch(CLAIMS, "a", {"spec": {"resourceClassName": "disk"}}, namespace)
    with pytest.raises(Invalid, match="spec is immutable: delete the template and create it again"):
        await client.patch(TEMPLATES, "a", {"spec": {"spec": {"resourceClassName": "disk"}}}, namespace)


async def test_unknown_fields_and_nulls_are_dropped_and_defaults_filled_in(client: Client, namespace: str) -> None:
    body = {**parley_claim("a", parameters={"free": None, "more": {"x": []}}, typo=1), "other": {}}

    made = await client.create(CLAIMS.untyped(), body, namespace)

    assert made["spec"] == {
        "resourceClassName": "gpu",
        "allocationMode": "WaitForFirstConsumer",
        "parameters": {"free": None, "more": {"x": []}},
    }
    assert "other" not in made


SCHEDULING_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "too many candidates": (
        {"spec": {"candidateNodes": [f"node-{number}" for number in range(129)]}},
        r"spec\.candidateNodes: (Too many|Invalid value)",
    ),
    "a negative round": ({"spec": {"round": -1}}, r"spec\.round: Invalid value"),
    "text for a number": ({"spec": {"round": "one"}}, r"spec\.round: Invalid value"),
    "an answer of no driver": (
        {"status": {"claims": [{"name": "gpu", "round": 1}]}},
        r"status\.claims\[0\]\.driverName: Required value",
    ),
    "alternatives of two kinds": (
        {
            "status": {
                "claims": [
                    answer(
                        "gpu",
                        alternatives={
                            "nodes": ["node-1"],
                            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": []}]},
                        },
                    )
                ]
            }
        },
        "nodes and nodeSelector exclude each other",
    ),
}


@pytest.mark.parametrize("case", SCHEDULING_REFUSED)
async def test_a_pod_scheduling_refuses(client: Client, namespace: str, case: str) -> None:
    fields, message = SCHEDULING_REFUSED[case]

    with pytest.raises(Invalid, match=message):
        await client.create(POD_SCHEDULINGS, pod_scheduling("web", **fields), namespace)


async def test_a_class_refuses_a_driver_that_is_no_name(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid, match=r'ResourceClass\.parley\.dev ".*" is invalid: driverName: Invalid value'):
        await client.create(CLASSES, {"metadata": {"name": namespace}, "driverName": "GPU!"})
    with pytest.raises(Invalid, match=r"driverName: Required value"):
        await client.create(CLASSES, {"metadata": {"name": namespace}})
