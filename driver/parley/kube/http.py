"""An API server reached over HTTP. Nothing is retried here, and every failure gets one of `client`'s names.

What happens                                           what is raised
the server refuses (a code from 300 up)                the ApiError of the code
no connection, connection lost, nothing in time        OutcomeUnknown, also where nothing was sent
a write lost between gateway, API server and etcd      OutcomeUnknown (see `answers.leaves_write_open`)
an object that does not fit the type                   OutcomeUnknown: it can't be told what is there
one of a list or a watch that does not fit             nothing: it is a tombstone
a watch that ends                                      nothing: the iteration ends
a watch cut in the middle of a line, or fallen silent  OutcomeUnknown
an ERROR event in a watch                              the ApiError of its code, Expired for 410

A request's time limit counts from the call, including the wait for a free connection and for new
credentials, and is exact: who must not write after a deadline (`lease`) relies on that.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from parley.api.resources import Resource
from parley.kube import answers, credentials, fence
from parley.kube.bodies import encoded, with_kind
from parley.kube.client import Body, Client, Listing, OutcomeUnknown, PatchType, Tombstone, WatchEvent
from parley.kube.credentials import Credentials

T = TypeVar("T")

JSON = "application/json"
REQUEST_SECONDS = 10.0
LIST_SECONDS = 60.0
PAGE = 500
"""Objects of a list that come in one answer; all pages together are as consistent as one."""

WATCH_SECONDS = 300.0
SILENT_SECONDS = 150.0
"""A watched collection sends a bookmark about once a minute: after this long the connection is dead."""

_QUICK = aiohttp.ClientTimeout(total=None)  # the limit is asyncio.timeout's: aiohttp rounds up to whole seconds
_NAME_CHARACTERS = ":@!$&'()*+,;=~"


@dataclass(frozen=True, slots=True)
class _Sessions:
    """The connections. Writes have their own where they are fenced; watches are not limited in number."""

    reads: aiohttp.ClientSession
    writes: aiohttp.ClientSession
    watches: aiohttp.ClientSession

    async def close(self) -> None:
        for session in (self.reads, self.writes, self.watches):
            await session.close()


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    """One request, as it is named in errors."""

    method: str
    resource: Resource[T]
    namespace: str | None = None
    name: str | None = None
    subresource: str = ""

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name, self.subresource) if part)
        return f"{self.method} {self.resource.plural} {place}".rstrip()

    @property
    def path(self) -> str:
        namespace = quote(self.namespace, _NAME_CHARACTERS) if self.namespace else None
        name = quote(self.name, _NAME_CHARACTERS) if self.name else None
        return self.resource.path(namespace, name, self.subresource)


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keeps aiohttp from repeating a DELETE whose connection broke: it may have been carried out."""
    try:
        return await send(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientError(str(error) or type(error).__name__) from error


class HttpClient(Client):
    """A `Client` over HTTP/1.1; an async context manager, which reads the credentials at its start.

    `timeout` limits every request but lists (`list_timeout`) and watches, which the server ends after
    `watch_seconds` and which are given up after `silent_seconds` without any event. `connections` is how many
    requests are on their way at once; watches come on top.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout: float = REQUEST_SECONDS,
        list_timeout: float = LIST_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
        connections: int = 64,
        user_agent: str = "parley",
    ) -> None:
        self._credentials = credentials
        self._timeout = timeout
        self._list_timeout = list_timeout
        self._watch_seconds = watch_seconds
        self._silence = aiohttp.ClientTimeout(total=None, sock_read=silent_seconds)
        self._connections = connections
        self._headers = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": user_agent}
        self._may_write: Callable[[], bool] | None = None
        self._sessions: _Sessions | None = None

    @classmethod
    def from_kubeconfig(cls, path: str | None = None, context: str | None = None, **options: Any) -> Self:
        """By a kubeconfig: `path`, else $KUBECONFIG, else ~/.kube/config. `options` are the constructor's."""
        return cls(credentials.kubeconfig(path, context), **options)

    @classmethod
    def in_cluster(cls, **options: Any) -> Self:
        """By the service account of the pod in which this runs. `options` are the constructor's."""
        return cls(credentials.in_cluster(), **options)

    def fenced(self, may_write: Callable[[], bool]) -> "HttpClient":
        """A client of the same server that sends no byte of a write unless `may_write()` is true at that moment.

        A write that was kept back so raises OutcomeUnknown. It has connections of its own: close both.
        """
        other = copy.copy(self)
        other._may_write = may_write
        other._sessions = None
        return other

    async def __aenter__(self) -> Self:
        """Raises NoConfiguration when there is none that could be used. The server is not asked yet."""
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; streams that are still open break."""
        if self._sessions is not None:
            await self._sessions.close()

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        call = _Call("GET", resource, namespace, name)
        return _decoded(call, await self._answer(call))

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        """In pages, so that a long list is never in memory as a whole before it is decoded."""
        call = _Call("GET", resource, namespace)
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        items: list[T] = []
        tombstones: list[Tombstone] = []
        rest = ""
        while True:
            query = _query(**selectors, limit=str(PAGE), **{"continue": rest})
            content = await self._answer(call, query, timeout=self._list_timeout)
            try:
                page, rest = answers.page(resource, content)
            except ValueError as error:
                raise _unreadable(call, error) from error
            items += page.items
            tombstones += page.tombstones
            if not rest:
                return Listing(tuple(items), page.resource_version, tuple(tombstones))

    async def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent[T]]:
        call = _Call("WATCH", resource, namespace)
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(int(self._watch_seconds)),
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        decode = answers.event_decoder(resource)
        try:
            response = await self._open_stream(call, query)
            try:
                async for line in _lines(call, response.content):
                    yield decode(line)
            finally:
                _give_up(response)
        except (aiohttp.ClientError, OSError) as error:
            raise _no_answer(call, error) from error
        except ValueError as error:
            raise _unreadable(call, error) from error

    async def create(
        self,
        resource: Resource[T],
        body: Body,
        namespace: str | None = None,
        *,
        field_manager: str = "",
    ) -> T:
        call = _Call("POST", resource, namespace)
        query = _query(fieldManager=field_manager)
        return _decoded(call, await self._answer(call, query, with_kind(resource, body)))

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body | Sequence[Any],
        namespace: str | None = None,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        call = _Call("PATCH", resource, namespace, name, subresource)
        query = _query(fieldManager=field_manager, force="true" if force else "")
        if patch_type is PatchType.APPLY and isinstance(body, Mapping):
            body = with_kind(resource, body)
        return _decoded(call, await self._answer(call, query, body, patch_type.value))

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid or resource_version:
            wanted = {"uid": uid, "resourceVersion": resource_version}
            options["preconditions"] = {field: value for field, value in wanted.items() if value}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        await self._answer(_Call("DELETE", resource, namespace, name), body=options)

    async def create_subresource(
        self,
        resource: Resource[T],
        name: str,
        subresource: str,
        body: Body,
        namespace: str | None = None,
    ) -> dict[str, Any]:
        call = _Call("POST", resource.untyped(), namespace, name, subresource)
        return _decoded(call, await self._answer(call, body=body))

    async def _open(self) -> _Sessions:
        """The sessions, with credentials that are not older than they may be."""
        if not self._credentials.current():
            await self._credentials.refresh()
        if self._sessions is None:
            plain = self._session(self._connections)
            writes = self._session(self._connections, self._may_write) if self._may_write else plain
            self._sessions = _Sessions(plain, writes, self._session(0))
        return self._sessions

    def _session(self, limit: int, may_send: Callable[[], bool] | None = None) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._credentials.tls or False,
                limit=limit,
                socket_factory=fence.sockets(may_send) if may_send else None,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            timeout=_QUICK,
            proxy=self._credentials.proxy,
        )

    def _arguments(self, call: _Call[Any], query: str) -> dict[str, Any]:
        """What requests and watches have in common."""
        known = self._credentials
        return {
            "url": URL(f"{known.host}{call.path}{query}", encoded=True),
            "headers": {"Authorization": known.authorization} if known.authorization else {},
            "allow_redirects": False,
            "server_hostname": known.server_name,
        }

    async def _answer(
        self,
        call: _Call[Any],
        query: str = "",
        body: Body | Sequence[Any] | None = None,
        media_type: str = JSON,
        *,
        timeout: float | None = None,
    ) -> bytes:
        """The content of a good answer."""
        data = None if body is None else encoded(body)
        try:
            async with asyncio.timeout(timeout or self._timeout):
                sessions = await self._open()
                session = sessions.reads if call.method == "GET" else sessions.writes
                arguments = self._arguments(call, query)
                if data is not None:
                    arguments["headers"]["Content-Type"] = media_type
                if call.method == "DELETE":
                    arguments["middlewares"] = (_send_once,)
                async with session.request(call.method, data=data, **arguments) as response:
                    content = await response.read()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise _no_answer(call, error) from error
        if response.status >= 300:
            raise self._refused(call, response, content)
        return content

    async def _open_stream(self, call: _Call[Any], query: str) -> aiohttp.ClientResponse:
        async with asyncio.timeout(self._timeout):
            session = (await self._open()).watches
            response = await session.request("GET", timeout=self._silence, **self._arguments(call, query))
            if response.status < 300:
                return response
            async with response:
                raise self._refused(call, response, await response.read())

    def _refused(self, call: _Call[Any], response: aiohttp.ClientResponse, content: bytes) -> Exception:
        if response.status == 401:
            self._credentials.doubt()
        phrase = response.reason or "Unknown"
        error = answers.refusal(response.status, phrase, content, response.headers.get("Retry-After"))
        if call.method not in ("GET", "WATCH") and answers.leaves_write_open(error):
            return OutcomeUnknown(f"{call}: {error}")
        return error


def _give_up(response: aiohttp.ClientResponse) -> None:
    """End a stream at once: a TLS goodbye would outlive this client, whose connector forgets closing sockets."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


async def _lines(call: _Call[Any], content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    lines = answers.Lines()
    async for chunk in content.iter_any():
        for line in lines.feed(chunk):
            yield line
    if lines.unfinished:
        raise OutcomeUnknown(f"{call}: the stream was cut in the middle of an event")


def _query(**parameters: str) -> str:
    given = {name: value for name, value in parameters.items() if value}
    return f"?{urlencode(given)}" if given else ""


def _decoded(call: _Call[T], content: bytes) -> T:
    try:
        return call.resource.decode(content)
    except ValueError as error:
        raise _unreadable(call, error) from error


def _no_answer(call: _Call[Any], error: Exception) -> OutcomeUnknown:
    return OutcomeUnknown(f"{call}: no answer: {str(error) or type(error).__name__}")


def _unreadable(call: _Call[Any], error: Exception) -> OutcomeUnknown:
    return OutcomeUnknown(f"{call}: the answer cannot be read as {call.resource.kind}: {error}")
