"""Opaque parameters are stored as they were sent, whatever they are, and nothing else of the object suffers."""

import asyncio
from typing import Any, TypeVar

import orjson
import pytest
from tests.integration.kube.objects import DRIVER, builtin_claim, parley_claim
from tests.integration.kube.waiting import LIMIT

from parley.api.builtin import BuiltinClaim
from parley.api.opaque import read, why_unreadable
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, Resource
from parley.kube.client import Client, EventType, Invalid, WatchEvent

T = TypeVar("T")

DEEP = "they nest deeper than 64 levels: make them flatter"
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "66 deep": (b'{"a":' * 66 + b"1" + b"}" * 66, DEEP),
    "250 deep": (b'{"a":' * 250 + b"1" + b"}" * 250, DEEP),
    "1,600 deep": (b'{"a":' * 1_600 + b"1" + b"}" * 1_600, DEEP),
    "5,000 lists deep": (b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}", DEEP),
    "half a surrogate pair": (
        b'{"a":"\\ud800"}',
        "they are not JSON that can be read: no low surrogate in string",
    ),
    "no UTF-8": (b'{"a":"\xff\xfe"}', "they are not JSON that can be read: str is not valid UTF-8"),
}
READABLE: dict[str, bytes] = {
    "65 deep": b'{"a":' * 65 + b"1" + b"}" * 65,
    "a name twice": b'{"a":1,"a":[2]}',
    "NUL": b'{"\\u0000":"\\u0000"}',
    "null": b'{"a":null}',
    "blanks": b' {\n\t"a" :\r [ 1 ] } ',
    "line separators": '{"a":"\u2028\u2029\u0085"}'.encode(),
    "brackets": b'{"a":"}]\\"}"}',
    "markup": b'{"a":"<&>"}',
    "long": b'{"a":"' + b"x" * 9_000 + b'"}',
    "tiny": b'{"a":-1e-99999}',
}


def claim(name: str, parameters: bytes, **metadata: Any) -> dict[str, Any]:
    body = builtin_claim(name)
    body["metadata"] |= metadata
    body["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": orjson.Fragment(parameters)}}]
    return body


def parameters_of(found: BuiltinClaim) -> Any:
    (config,) = found.spec.devices.config
    assert config.opaque is not None
    return read(config.opaque.parameters)


async def next_event(client: Client, resource: Resource[T], namespace: str, version: str) -> WatchEvent[T]:
    """The first one after that version, decoded as its kind."""
    async with asyncio.timeout(LIMIT):
        async for event in client.watch(resource, namespace, resource_version=version):
            if event.type is not EventType.BOOKMARK:
                return event
    raise AssertionError("the watch ended")


async def seen(client: Client, namespace: str, parameters: bytes) -> list[BuiltinClaim]:
    """A claim with the parameters as it comes from a write, a read, a list and a watch."""
    version = (await client.list(BUILTIN_CLAIMS, namespace)).resource_version
    made = await client.create(BUILTIN_CLAIMS, claim("a", parameters), namespace)
    event = await next_event(client, BUILTIN_CLAIMS, namespace, version)
    listing = await client.list(BUILTIN_CLAIMS, namespace)
    assert (event.tombstone, listing.tombstones) == (None, ())
    assert event.object is not None
    return [made, await client.get(BUILTIN_CLAIMS, "a", namespace), *listing.items, event.object]


@pytest.mark.parametrize(("parameters", "why"), UNREADABLE.values(), ids=UNREADABLE)
async def test_what_nobody_can_read(client: Client, namespace: str, parameters: bytes, why: str) -> None:
    for found in await seen(client, namespace, parameters):
        assert found.metadata.name == "a"
        assert why_unreadable(parameters_of(found)).startswith(why)


@pytest.mark.parametrize("parameters", READABLE.values(), ids=READABLE)
async def test_what_is_only_odd(client: Client, namespace: str, parameters: bytes) -> None:
    for found in await seen(client, namespace, parameters):
        assert parameters_of(found) == orjson.loads(parameters)


@pytest.mark.parametrize("parameters", [b"7", b"null", b"[]", b'"{}"'], ids=str)
async def test_what_is_no_object(client: Client, namespace: str, parameters: bytes) -> None:
    status = {
        "allocation": {
            "devices": {
                "results": [],
                "config": [
                    {
                        "source": "FromClaim",
                        "opaque": {"driver": DRIVER, "parameters": orjson.Fragment(parameters)},
                    }
                ],
            }
        }
    }
    await client.create(BUILTIN_CLAIMS, builtin_claim("a"), namespace)
    with pytest.raises(Invalid):
        await client.patch(BUILTIN_CLAIMS, "a", {"status": status}, namespace, subresource="status")


@pytest.mark.parametrize("character", ["<", ">", "&", "\u2028", "\u2029"], ids=ascii)
async def test_what_go_escapes_counts_as_it_is_written(client: Client, namespace: str, character: str) -> None:
    """10 KiB is the limit."""
    fits, too_long = (f'{{"a":"{character * count}"}}'.encode() for count in (1_700, 1_706))
    await client.create(BUILTIN_CLAIMS, claim("a", fits), namespace)
    result = {"request": "exclusive", "driver": DRIVER, "pool": "p", "device": "d"}

    def status(data: bytes) -> dict[str, Any]:
        opaque = {"driver": DRIVER, "parameters": orjson.Fragment(data)}
        devices = {"results": [result], "config": [{"source": "FromClaim", "opaque": opaque}]}
        return {"status": {"allocation": {"devices": devices}}}

    with pytest.raises(Invalid, match=r"allocation.devices.config\[0\].opaque.parameters: Too long"):
        await client.patch(BUILTIN_CLAIMS, "a", status(too_long), namespace, subresource="status")
    await client.patch(BUILTIN_CLAIMS, "a", status(fits), namespace, subresource="status")

    def devices(data: bytes) -> dict[str, Any]:
        one = {"driver": DRIVER, "pool": "p", "device": "d", "data": orjson.Fragment(data)}
        return {"status": {"devices": [one]}}

    with pytest.raises(Invalid, match=r"status.devices\[0\].data: Too long"):
        await client.patch(BUILTIN_CLAIMS, "a", devices(too_long), namespace, subresource="status")
    await client.patch(BUILTIN_CLAIMS, "a", devices(fits), namespace, subresource="status")


async def test_a_claim_with_what_go_escapes_can_lose_its_finalizer(client: Client, namespace: str) -> None:
    text = '{"a":"<&>\u2028\u2029"}'.encode()
    await client.create(BUILTIN_CLAIMS, claim("a", text, finalizers=["parley.dev/in-use"]), namespace)

    changed = await client.patch(BUILTIN_CLAIMS, "a", {"metadata": {"finalizers": None}}, namespace)

    assert changed.metadata.finalizers == []


@pytest.mark.parametrize("levels", [250, 2_000], ids=str)
async def test_a_claim_of_parley_that_nests_too_deep(client: Client, namespace: str, levels: int) -> None:
    version = (await client.list(CLAIMS, namespace)).resource_version
    deep = orjson.Fragment(b'{"a":' * levels + b"1" + b"}" * levels)
    await client.create(CLAIMS, parley_claim("a", parameters=deep), namespace)

    event = await next_event(client, CLAIMS, namespace, version)
    listing = await client.list(CLAIMS, namespace)

    assert event.object is not None
    for found in (event.object, *listing.items):
        assert why_unreadable(found.spec.parameters) == DEEP
    (plain,) = (await client.list(CLAIMS.untyped(), namespace)).items
    assert plain["spec"]["resourceClassName"] == "gpu"
