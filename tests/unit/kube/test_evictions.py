"""Evictions on the in-memory server: a disruption budget's status decides, as it stands."""

from typing import Any

import pytest

from parley.api.resources import PODS
from parley.kube.client import Client, Conflict, NotFound, ServerError, TooManyRequests
from parley.kube.memory import MemoryServer
from parley.kube.memory.evictions import BUDGETS

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


async def pod(client: Client, name: str, phase: str = "Running", *, ready: bool = True, **labels: str) -> str:
    """A pod on a node. Returns its UID."""
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": "a", "containers": []}}
    made = await client.create(PODS, body, "team")
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": phase, "conditions": conditions}
    await client.patch(PODS, name, {"status": status}, "team", subresource="status")
    return made.metadata.uid


async def budget(client: Client, name: str, selector: Any, **status: Any) -> None:
    await client.create(BUDGETS, {"metadata": {"name": name}, "spec": {"selector": selector}}, "team")
    whole = {"status": {"observedGeneration": 1, "desiredHealthy": 1, **status}}
    await client.patch(BUDGETS, name, whole, "team", subresource="status")


async def evict(client: Client, name: str, **options: Any) -> None:
    body = {"metadata": {"name": name, "namespace": "team"}, "deleteOptions": options}
    await client.create_subresource(PODS, name, "eviction", body, "team")


async def leaving(client: Client, name: str) -> bool:
    try:
        return bool((await client.get(PODS, name, "team")).metadata.deletion_timestamp)
    except NotFound:
        return True


WEB = {"matchLabels": {"app": "web"}}


def among(*apps: str) -> Any:
    return {"matchExpressions": [{"key": "app", "operator": "In", "values": list(apps)}]}


@pytest.mark.parametrize(
    ("selector", "status", "phase", "ready", "refusal"),
    [
        (WEB, {"disruptionsAllowed": 1}, "Running", True, ""),
        (WEB, {"disruptionsAllowed": 0}, "Running", True, REFUSED),
        ({}, {"disruptionsAllowed": 0}, "Running", True, REFUSED),
        (None, {"disruptionsAllowed": 0}, "Running", True, ""),
        ({"matchLabels": {"app": "other"}}, {"disruptionsAllowed": 0}, "Running", True, ""),
        (among("web", "other"), {"disruptionsAllowed": 0}, "Running", True, REFUSED),
        (among("other"), {"disruptionsAllowed": 0}, "Running", True, ""),
        (WEB, {"disruptionsAllowed": 1, "observedGeneration": 0}, "Running", True, REFUSED),
        (WEB, {"disruptionsAllowed": 0}, "Pending", True, ""),
        (WEB, {"disruptionsAllowed": 0, "currentHealthy": 1}, "Running", False, ""),
        (WEB, {"disruptionsAllowed": 0, "currentHealthy": 0}, "Running", False, REFUSED),
    ],
    ids=[
        "allowed",
        "used up",
        "selects all",
        "selects none",
        "selects others",
        "selects by an expression",
        "selects others by an expression",
        "not processed yet",
        "never ran",
        "not ready, enough are",
        "not ready, too few are",
    ],
)
async def test_what_a_budget_says(
    selector: Any, status: dict[str, Any], phase: str, ready: bool, refusal: str
) -> None:
    client = MemoryServer().client()
    await pod(client, "web", phase, ready=ready, app="web")
    await budget(client, "budget", selector, **status)

    if refusal:
        with pytest.raises(TooManyRequests) as caught:
            await evict(client, "web")
        assert caught.value.message == refusal
    else:
        await evict(client, "web")

    assert await leaving(client, "web") == (not refusal)


async def test_an_eviction_takes_from_the_budget_and_a_dry_run_does_not() -> None:
    client = MemoryServer().client()
    for name in ("one", "two"):
        await pod(client, name, app="web")
    await budget(client, "budget", WEB, disruptionsAllowed=1)

    await evict(client, "one", dryRun=["All"])
    assert not await leaving(client, "one")
    await evict(client, "one")

    assert await leaving(client, "one")
    with pytest.raises(TooManyRequests):
        await evict(client, "two")
    assert list((await client.get(BUDGETS, "budget", "team"))["status"]["disruptedPods"]) == ["one"]


async def test_a_pod_of_two_budgets_is_not_evicted() -> None:
    client = MemoryServer().client()
    await pod(client, "web", app="web")
    for name in ("one", "two"):
        await budget(client, name, WEB, disruptionsAllowed=1)

    with pytest.raises(ServerError):
        await evict(client, "web")


async def test_another_pod_of_that_name_is_not_evicted() -> None:
    client = MemoryServer().client()
    uid = await pod(client, "web")

    with pytest.raises(Conflict):
        await evict(client, "web", preconditions={"uid": "other"})
    await evict(client, "web", preconditions={"uid": uid})

    assert await leaving(client, "web")
