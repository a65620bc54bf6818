"""Watching: what is told, in which order, from where on, and what of it is selected."""

from typing import Any

import pytest
from tests.integration.kube.objects import binding, claim_release, config_map, pod, pod_scheduling
from tests.integration.kube.waiting import next_events

from parley.api.resources import CLAIM_RELEASES, POD_SCHEDULINGS, PODS
from parley.kube.client import BadRequest, Client, ServerError, WatchEvent

SCHEDULING = POD_SCHEDULINGS.untyped()


def told(events: list[WatchEvent[dict[str, Any]]]) -> list[str]:
    """Each event in words."""
    return [f"{event.type.value} {event.object['metadata']['name']}" for event in events if event.object]


async def start(client: Client, namespace: str) -> str:
    """The version to watch from."""
    return (await client.list(SCHEDULING, namespace)).resource_version


async def test_changes_are_told_in_order(client: Client, namespace: str) -> None:
    version = await start(client, namespace)
    await client.create(SCHEDULING, pod_scheduling("a"), namespace)
    await client.patch(SCHEDULING, "a", {"spec": {"round": 1}}, namespace)
    await client.create(SCHEDULING, pod_scheduling("b"), namespace)
    await client.delete(SCHEDULING, "a", namespace)

    events = await next_events(client, SCHEDULING, namespace, version, 4)

    assert told(events) == ["ADDED a", "MODIFIED a", "ADDED b", "DELETED a"]
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(set(versions))
    assert min(versions) > int(version)


async def test_an_event_shows_the_object_as_it_was_then(client: Client, namespace: str) -> None:
    version = await start(client, namespace)
    await client.create(SCHEDULING, pod_scheduling("a", spec={"round": 1}), namespace)
    await client.patch(SCHEDULING, "a", {"spec": {"round": 2}}, namespace)
    await client.delete(SCHEDULING, "a", namespace)

    events = await next_events(client, SCHEDULING, namespace, version, 3)

    objects = [event.object for event in events if event.object]
    assert [seen["spec"]["round"] for seen in objects] == [1, 2, 2]
    assert [seen["metadata"]["resourceVersion"] for seen in objects] == [
        event.resource_version for event in events
    ]


async def test_a_watch_continues_where_another_ended(client: Client, namespace: str) -> None:
    version = await start(client, namespace)
    for name in ("a", "b", "c"):
        await client.create(SCHEDULING, pod_scheduling(name), namespace)

    (first,) = await next_events(client, SCHEDULING, namespace, version, 1)
    rest = await next_events(client, SCHEDULING, namespace, first.resource_version, 2)

    assert told([first]) == ["ADDED a"]
    assert told(rest) == ["ADDED b", "ADDED c"]


async def test_a_watch_of_one_namespace_or_of_all(client: Client, namespace: str) -> None:
    version = await start(client, namespace)
    await client.create(SCHEDULING, pod_scheduling("a"), "default")
    await client.create(SCHEDULING, pod_scheduling("b"), namespace)

    everywhere = await next_events(client, SCHEDULING, None, version, 2)
    here = await next_events(client, SCHEDULING, namespace, version, 1)

    assert told(everywhere) == ["ADDED a", "ADDED b"]
    assert told(here) == ["ADDED b"]
    await client.delete(SCHEDULING, "a", "default")


async def test_an_object_begins_and_ceases_to_match(client: Client, namespace: str) -> None:
    version = await start(client, namespace)
    body = config_map("a", labels={"app": "db"})["metadata"]
    await client.create(SCHEDULING, {**pod_scheduling("a"), "metadata": body}, namespace)
    for label in ("web", "web", "db"):
        patch = {"metadata": {"labels": {"app": label}}, "spec": {"round": 1 if label == "web" else 2}}
        await client.patch(SCHEDULING, "a", patch, namespace)
    await client.patch(SCHEDULING, "a", {"metadata": {"labels": {"app": "web", "more": "1"}}}, namespace)

    events = await next_events(client, SCHEDULING, namespace, version, 3, label_selector="app=web")

    assert told(events) == ["ADDED a", "DELETED a", "ADDED a"]
    last = events[1].object
    assert last is not None
    assert last["spec"] == {"round": 1}
    assert last["metadata"]["labels"] == {"app": "web"}
    assert last["metadata"]["resourceVersion"] == events[1].resource_version


async def test_a_nodes_pods_are_seen_from_their_binding_on(client: Client, namespace: str) -> None:
    version = (await client.list(PODS, namespace)).resource_version
    await client.create(PODS, pod("a"), namespace)
    await client.create_subresource(PODS, "a", "binding", binding("a", "node-1"), namespace)
    await client.patch(PODS, "a", {"status": {"phase": "Running"}}, namespace, subresource="status")
    await client.delete(PODS, "a", namespace, grace_period_seconds=0)

    node = await next_events(client, PODS, namespace, version, 4, field_selector="spec.nodeName=node-1")
    nowhere = await next_events(client, PODS, namespace, version, 2, field_selector="spec.nodeName=")

    assert told(node) == ["ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a"]
    assert "deletionTimestamp" in (node[2].object or {})["metadata"]
    assert told(nowhere) == ["ADDED a", "DELETED a"]


async def test_a_node_hears_of_its_own_releases(client: Client) -> None:
    version = (await client.list(CLAIM_RELEASES)).resource_version
    for name, node in (("a", "n1"), ("b", "n2")):
        await client.create(CLAIM_RELEASES, claim_release(name, node))
    await client.patch(CLAIM_RELEASES, "b", {"status": {"allocationCleared": True}})
    for name in ("a", "b"):
        await client.delete(CLAIM_RELEASES, name)

    events = await next_events(client, CLAIM_RELEASES, None, version, 3, field_selector="spec.nodeName=n2")

    assert told(events) == ["ADDED b", "MODIFIED b", "DELETED b"]


async def test_the_release_of_a_finalizer_is_a_deletion(client: Client, namespace: str) -> None:
    version = await start(client, namespace)
    body = {**pod_scheduling("a"), "metadata": {"name": "a", "finalizers": ["x.dev/hold"]}}
    await client.create(SCHEDULING, body, namespace)
    await client.delete(SCHEDULING, "a", namespace)
    await client.patch(SCHEDULING, "a", {"metadata": {"finalizers": None}}, namespace)

    events = await next_events(client, SCHEDULING, namespace, version, 3)

    assert told(events) == ["ADDED a", "MODIFIED a", "DELETED a"]


async def test_events_are_typed_as_the_kind_says(client: Client, namespace: str) -> None:
    version = (await client.list(PODS, namespace)).resource_version
    await client.create(PODS, pod("a"), namespace)

    async for event in client.watch(PODS, namespace, resource_version=version):
        if event.object is not None:
            assert event.object.metadata.name == "a"
            break


async def test_a_version_is_a_number(client: Client, namespace: str) -> None:
    with pytest.raises(ServerError, match='resourceVersion: Invalid value: "yesterday"'):
        await next_events(client, PODS, namespace, "yesterday", 1)


async def test_a_selector_that_is_none_is_refused(client: Client, namespace: str) -> None:
    version = await start(client, namespace)

    with pytest.raises(BadRequest):
        await next_events(client, PODS, namespace, version, 1, field_selector="spec.hostname=a")
