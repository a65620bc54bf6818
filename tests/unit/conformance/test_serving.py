"""The API server of the kit over HTTP: what client libraries of other languages ask of it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import aiohttp
import orjson
import pytest

from parley.api import resources
from parley.conformance.serving import served
from parley.conformance.traffic import DriverTraffic
from parley.kube.client import Client
from parley.kube.memory import MemoryServer

CLAIMS = "/apis/parley.dev/v1alpha1/namespaces/team/resourceclaims"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/team/leases"
LEASE = {"metadata": {"name": "one"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
CLAIM = {"metadata": {"name": "one"}, "spec": {"resourceClassName": "seats"}}
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def client() -> Client:
    return MemoryServer().client()


@pytest.fixture
async def http(client: Client) -> AsyncIterator[aiohttp.ClientSession]:
    async with served(DriverTraffic(client)) as server, aiohttp.ClientSession(server) as session:
        yield session


async def make_claim(client: Client) -> None:
    await client.create(resources.CLAIMS, CLAIM, "team")


async def test_discovery_names_the_kinds(http: aiohttp.ClientSession) -> None:
    async with http.get("/apis") as answer:
        groups = {group["name"] for group in (await answer.json())["groups"]}
    async with http.get("/apis/parley.dev/v1alpha1") as answer:
        kinds = {found["name"]: found["kind"] for found in (await answer.json())["resources"]}

    assert {"parley.dev", "coordination.k8s.io"} <= groups
    assert kinds["podschedulings"] == "PodScheduling"


async def test_a_lease_is_made_updated_and_protected_by_its_version(http: aiohttp.ClientSession) -> None:
    async with http.post(LEASES, json=LEASE) as answer:
        made = await answer.json()
    assert (answer.status, made["kind"]) == (201, "Lease")

    changed = {**made, "spec": {"holderIdentity": "b"}}
    async with http.put(f"{LEASES}/one", json=changed) as answer:
        assert (await answer.json())["spec"] == {"holderIdentity": "b"}
    async with http.put(f"{LEASES}/one", json=changed) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (409, "Conflict")


async def test_parleys_kinds_are_read_and_patched_only_as_the_account_may(
    http: aiohttp.ClientSession, client: Client
) -> None:
    await make_claim(client)
    async with http.put(f"{CLAIMS}/one", json=CLAIM) as answer:
        told = await answer.json()
    assert (answer.status, told["kind"], told["reason"]) == (403, "Status", "Forbidden")
    assert "may patch resourceclaims, and not update them" in told["message"]

    async with http.patch(f"{CLAIMS}/one", json={"metadata": {"labels": {"a": "b"}}}, headers=MERGE) as answer:
        assert (await answer.json())["metadata"]["labels"] == {"a": "b"}
    other = {"Content-Type": "application/json-patch+json"}
    async with http.patch(f"{CLAIMS}/one", data=b"[]", headers=other) as answer:
        assert answer.status == 415
    async with http.get(f"{CLAIMS}/two") as answer:
        assert (answer.status, (await answer.json())["reason"]) == (404, "NotFound")


async def test_an_apply_may_be_yaml(http: aiohttp.ClientSession, client: Client) -> None:
    await make_claim(client)
    body = "apiVersion: parley.dev/v1alpha1\nkind: ResourceClaim\nmetadata: {name: one, labels: {a: b}}\n"
    headers = {"Content-Type": "application/apply-patch+yaml"}

    async with http.patch(f"{CLAIMS}/one?fieldManager=me&force=true", data=body, headers=headers) as answer:
        assert (await answer.json())["metadata"]["labels"] == {"a": "b"}


async def test_lists_have_a_kind_and_watches_go_on_from_them(http: aiohttp.ClientSession, client: Client) -> None:
    await make_claim(client)
    async with http.get(CLAIMS) as answer:
        listed = await answer.json()
    assert (listed["kind"], len(listed["items"])) == ("ResourceClaimList", 1)

    version = listed["metadata"]["resourceVersion"]
    async with http.get(f"{CLAIMS}?watch=true&resourceVersion={version}") as stream:
        await client.patch(resources.CLAIMS, "one", {"metadata": {"labels": {"a": "b"}}}, "team")
        event = orjson.loads(await stream.content.readline())
    assert (event["type"], event["object"]["metadata"]["labels"]) == ("MODIFIED", {"a": "b"})


async def test_a_watch_without_a_version_begins_with_what_is_there(
    http: aiohttp.ClientSession, client: Client
) -> None:
    await make_claim(client)

    async with http.get(f"{CLAIMS}?watch=true") as stream:
        event = orjson.loads(await stream.content.readline())

    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "one")


async def test_a_driver_that_is_killed_while_it_watches_is_no_error_of_the_server(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Each kill of the kit's printed a stack trace among the results."""
    await make_claim(client)
    async with served(DriverTraffic(client)) as server:
        port = int(server.rpartition(":")[2])
        driver = socket.create_connection(("127.0.0.1", port))
        driver.sendall(f"GET {CLAIMS}?watch=true HTTP/1.1\r\nHost: kit\r\n\r\n".encode())
        await asyncio.sleep(0.1)
        driver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        driver.close()  # with a reset, as when a process is killed
        for value in ("1", "2", "3"):
            await client.patch(resources.CLAIMS, "one", {"metadata": {"annotations": {"n": value}}}, "team")
        await asyncio.sleep(0.1)

    assert [record.getMessage() for record in caplog.records] == []


async def test_who_wants_the_list_within_the_watch_is_sent_back_to_lists(http: aiohttp.ClientSession) -> None:
    async with http.get(f"{CLAIMS}?watch=true&sendInitialEvents=true&resourceVersion=") as answer:
        assert (answer.status, (await answer.json())["reason"]) == (422, "Invalid")
