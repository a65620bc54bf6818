"""An API server over HTTP in front of a client: of the server in memory, or of a real one, to record a driver's
writes.

It supports what drivers need: get, list, watch, create, merge patch, server-side apply, update and delete, and
enough discovery for client libraries. No authentication: serve it on loopback.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from aiohttp import web

from parley.api.names import GROUP
from parley.conformance.addresses import Address, address_of, discovery
from parley.kube.client import ApiError, BadRequest, Call, Client, Invalid, OutcomeUnknown
from parley.kube.errors import ServerError
from parley.kube.transport import APPLY_PATCH, JSON, MERGE_PATCH, EventType, RawEvent

_QUERY: Final = frozenset(
    {"labelSelector", "fieldSelector", "resourceVersion", "limit", "continue", "fieldManager", "force"}
)
_PATCHES: Final = (MERGE_PATCH, APPLY_PATCH)
_ANY_VERSION: Final = ("", "0")
"""resourceVersions that mean "any version": a watch with one of them begins with the existing objects."""


@asynccontextmanager
async def served(client: Client, port: int = 0, shutdown: float = 0.1) -> AsyncIterator[str]:
    """Serves `client` on loopback within the block; yields the server's address."""
    app = web.Application(client_max_size=2**24)
    front = _Front(client)
    app.router.add_route("*", "/{path:.*}", front.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=shutdown, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def write_kubeconfig(path: Path, server: str) -> None:
    """Write a kubeconfig for the server, with a token that it ignores."""
    entry = {"name": "conformance"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{**entry, "cluster": {"server": server}}],
        "users": [{**entry, "user": {"token": "conformance"}}],
        "contexts": [{**entry, "context": {"cluster": "conformance", "user": "conformance"}}],
        "current-context": "conformance",
    }
    path.write_text(yaml.safe_dump(document))


class _Front:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handles any request."""
        if request.method == "GET" and (found := discovery(request.path)) is not None:
            return web.json_response(found)
        try:
            address = address_of(request.path)
            if address is None:
                return _refused(ApiError(404, "NotFound", "the server could not find the requested resource"))
            if request.query.get("watch") in ("true", "1"):
                return await self._watch(request, address)
            return await self._answer(request, address)
        except ApiError as error:
            return _refused(error)
        except OutcomeUnknown as error:
            return _refused(ServerError(504, "Timeout", str(error)))

    async def _answer(self, request: web.Request, address: Address) -> web.Response:
        call = _call(request, address, _parsed(await request.read()))
        if request.method == "PUT" and call.resource.group != GROUP:  # nobody may update those of Parley's
            call = await self._as_merge_patch(call)
        content = await self._client.request(call)
        if call.verb == "list":
            content = _with_list_kind(call, content)
        return web.Response(body=content, status=201 if call.verb == "create" else 200, content_type=JSON)

    async def _as_merge_patch(self, call: Call) -> Call:
        """An update as a merge patch with the same result."""
        query = Call("get", call.resource, call.namespace, call.name)
        before = orjson.loads(await self._client.request(query))
        body = _merge_patch(before, call.body)
        return replace(call, verb="patch", body=body, content_type=MERGE_PATCH)

    async def _watch(self, request: web.Request, address: Address) -> web.StreamResponse:
        if request.query.get("sendInitialEvents"):
            raise Invalid(422, "Invalid", "sendInitialEvents: Forbidden: this server begins no watch with a list")
        call = _call(request, address, None, verb="watch")
        response = web.StreamResponse(headers={"Content-Type": JSON})
        await response.prepare(request)
        first: list[RawEvent] = []
        if call.query.get("resourceVersion", "") in _ANY_VERSION:
            call, first = await self._list_and_watch(call)
        try:
            for event in first:
                await response.write(_line(event.type.value, event.object))
            async with aclosing(self._client.stream(call)) as events:
                async for event in events:
                    await response.write(_line(event.type.value, event.object))
        except ApiError as error:
            await response.write(_line("ERROR", orjson.dumps(_status(error))))
        except (OutcomeUnknown, ConnectionResetError):
            pass  # the stream ends, as a real server's does; or the driver was killed
        return response

    async def _list_and_watch(self, call: Call) -> tuple[Call, list[RawEvent]]:
        """A watch from now on, and the existing objects as events."""
        listing = Call("list", call.resource, call.namespace, query={**call.query, "resourceVersion": ""})
        found = orjson.loads(await self._client.request(listing))
        query = {**call.query, "resourceVersion": found["metadata"]["resourceVersion"]}
        there = [RawEvent(EventType.ADDED, orjson.dumps(item)) for item in found["items"]]
        return Call("watch", call.resource, call.namespace, query=query), there


def _call(request: web.Request, address: Address, body: Any, verb: str = "") -> Call:
    query = {name: value for name, value in request.query.items() if name in _QUERY and value}
    verb = verb or _verb(request, address)
    content_type = request.content_type if request.method == "PATCH" else JSON
    if request.method == "PATCH" and content_type not in _PATCHES:
        raise ApiError(415, "UnsupportedMediaType", f"{content_type}: send one of {', '.join(_PATCHES)}")
    if body is not None and not isinstance(body, dict):
        raise BadRequest(400, "BadRequest", "the body is not an object")
    name = address.name or str(((body or {}).get("metadata") or {}).get("name", ""))
    return Call(
        verb, address.resource(body), address.namespace, name, address.subresource, query, body, content_type
    )


def _verb(request: web.Request, address: Address) -> str:
    if request.method == "GET":
        return "get" if address.name else "list"
    verbs = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
    if request.method not in verbs:
        raise ApiError(405, "MethodNotAllowed", f"the server does not allow {request.method} here")
    return verbs[request.method]


def _parsed(content: bytes) -> Any:
    """The content parsed as JSON, or as YAML, which server-side apply may send."""
    if not content:
        return None
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        pass
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise BadRequest(400, "BadRequest", f"the body can't be read: {error}") from None


def _merge_patch(before: Any, after: Any) -> Any:
    """The merge patch from `before` to `after`; fields that the server sets are not removed."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    gone = {name: None for name in before if name not in after and name not in _SERVER_FIELDS}
    return {**gone, **{name: _merge_patch(before.get(name), value) for name, value in after.items()}}


_SERVER_FIELDS: Final = frozenset(
    {
        "metadata",
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)
"""Fields that an update need not repeat."""


def _with_list_kind(call: Call, content: bytes) -> bytes:
    """The list with its kind, which some clients require."""
    if not content.startswith(b'{"metadata"'):
        return content  # a real server's list, which has its kind
    kind = orjson.dumps({"kind": f"{call.resource.kind}List", "apiVersion": call.resource.api_version})
    return kind[:-1] + b"," + content[1:]


def _line(kind: str, item: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), item)


def _status(error: ApiError) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": error.status,
        "reason": error.reason,
        "message": error.message,
    }


def _refused(error: ApiError) -> web.Response:
    return web.json_response(_status(error), status=error.status)
