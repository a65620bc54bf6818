"""Lists of huge objects: nobody limits how many of them users make, and no page is as large as all of them."""

import tracemalloc

import pytest
from aiohttp import web
from tests.unit.kube.http.answers import Handler, Serve

from parley.api.resources import PODS

MB = 1_000_000
PADDING = b"x" * MB


def stored(sizes: list[int], limits: list[int]) -> Handler:
    """A server with a pod for each of the sizes, in megabytes; keeps the limits of the pages that it is asked
    for."""

    async def handler(request: web.Request) -> web.StreamResponse:
        first, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        limits.append(limit)
        last = min(first + limit, len(sizes))
        rest = str(last) if last < len(sizes) else ""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            await response.write(b'{"metadata":{"resourceVersion":"9","continue":"%s"},"items":[' % rest.encode())
            for number in range(first, last):
                meta = b'"name":"p%d","namespace":"team","uid":"%d","resourceVersion":"1"' % (number, number)
                await response.write((b"," if number > first else b"") + b'{"metadata":{%s,"padding":"' % meta)
                for _ in range(sizes[number]):
                    await response.write(PADDING)
                await response.write(b'"}}')
            await response.write(b"]}")
        except ConnectionError:
            pass  # the client has enough
        return response

    return handler


@pytest.mark.parametrize("small", [0, 500])
async def test_a_list_of_huge_objects_takes_little_memory(serve: Serve, small: int) -> None:
    """As many small ones before them as are on a page give no warning."""
    sizes, limits = [0] * small + [1] * 120 + [0] * 40, list[int]()
    client = await serve(stored(sizes, limits))

    tracemalloc.start()
    try:
        listing = await client.list(PODS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert [pod.metadata.name for pod in listing.items] == [f"p{number}" for number in range(len(sizes))]
    assert peak < 80 * MB
    assert len(limits) < 20


async def test_one_object_is_read_however_large_it_is(serve: Serve) -> None:
    limits = list[int]()
    client = await serve(stored([40, 0, 40], limits))

    listing = await client.list(PODS)

    assert [pod.metadata.name for pod in listing.items] == ["p0", "p1", "p2"]


async def test_pages_are_as_long_as_ever_if_objects_are_of_the_usual_size(serve: Serve) -> None:
    limits = list[int]()
    client = await serve(stored([0] * 1200, limits))

    await client.list(PODS)

    assert limits == [500, 500, 500]
