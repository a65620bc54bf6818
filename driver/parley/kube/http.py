"""The client of an API server over HTTP. It retries nothing, and raises the exceptions in `errors`.

What happens                                           what is raised
the server refuses (a code from 300 up)                the ApiError of the code
a 404 that does not come from an API server            Garbled: another server answered
JSON of another server: no object, list or Status      Garbled (by the `Client` around this)
a page of a list with too many bytes                   PageTooLong, unless one object was asked for
no connection, connection lost, nothing in time        OutcomeUnknown, also where nothing was sent
a write lost between gateway, API server and etcd      OutcomeUnknown (see `responses.leaves_write_open`)
a watch that ends                                      nothing: the iteration ends
a watch cut in the middle of a line                    OutcomeUnknown
a watch fallen silent                                  Silent
a watch whose server vanished without closing it       OutcomeUnknown, within 45 s
an ERROR event in a watch                              the ApiError of its code, Expired for 410

A request's time limit counts from the call, including the wait for a free connection and for new
credentials, and is exact: `lease` relies on that, because a leader must not write after a deadline.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from aiohappyeyeballs import AddrInfoType
from yarl import URL

from parley.api.opaque import escaped
from parley.kube import credentials, fencing, responses, unanswered
from parley.kube.client import Client
from parley.kube.credentials import Credentials
from parley.kube.errors import Garbled, OutcomeUnknown, PageTooLong, Silent, Unreachable
from parley.kube.transport import JSON, LONGEST_PAGE, Call, RawEvent

_QUICK = aiohttp.ClientTimeout(total=None)  # the limit is asyncio.timeout's: aiohttp rounds up to whole seconds
_NAME_CHARACTERS = ":@!$&'()*+,;=~"


_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""TCP keepalive: seconds without a byte before the first probe, seconds between probes, and the number of
unanswered probes that break the connection: 45 s in all, as in client-go."""

Sockets = Callable[[AddrInfoType], socket.socket]


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How requests are sent; times in seconds.

    `timeout` limits every request but lists (`list_timeout`) and watches, which the server ends after
    `watch_seconds` and which are given up after `silent_seconds` without any event: a watched collection sends a
    bookmark about once a minute. `connections` limits concurrent requests; watches come on top.
    `impersonate` is the user, with groups, to impersonate, instead of the one in a kubeconfig.
    """

    timeout: float = 10.0
    list_timeout: float = 60.0
    watch_seconds: float = 300.0
    silent_seconds: float = 150.0
    connections: int = 64
    user_agent: str = "parley"
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()

    def headers(self) -> list[tuple[str, str]]:
        """The headers of every request."""
        plain = [("Accept", JSON), ("Accept-Encoding", "identity"), ("User-Agent", self.user_agent)]
        user = [("Impersonate-User", self.impersonate)] if self.impersonate else []
        return plain + user + [("Impersonate-Group", group) for group in self.impersonate_groups]


@dataclass(frozen=True, slots=True)
class _Sessions:
    """The connection pools. Fenced writes have their own; watches are not limited in number.

    `certificate` is the number of the client certificate with which they were opened.
    """

    certificate: int
    reads: aiohttp.ClientSession
    writes: aiohttp.ClientSession
    watches: aiohttp.ClientSession

    async def close(self) -> None:
        for session in (self.reads, self.writes, self.watches):
            await session.close()


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keeps aiohttp from repeating a DELETE whose connection broke: it may have been carried out."""
    try:
        return await send(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientError(str(error) or type(error).__name__) from error


class HttpTransport:
    """A `Transport` over HTTP/1.1. No byte of a write is sent unless `may_write` is true at that moment."""

    def __init__(
        self, credentials: Credentials, options: HttpOptions, may_write: Callable[[], bool] | None = None
    ) -> None:
        self._credentials = credentials
        self._options = options
        self._silence = aiohttp.ClientTimeout(total=None, sock_read=options.silent_seconds)
        self._headers = options.headers()
        self._may_write = may_write
        self._sessions: _Sessions | None = None
        self._former: _Sessions | None = None
        """The sessions with the previous certificate: their requests under way continue."""

    async def open(self) -> None:
        """Reads the credentials. Raises NoConfiguration if there are none that can be used."""
        await self._opened()

    async def close(self) -> None:
        """Closes all connections; streams that are still open break."""
        for sessions in (self._former, self._sessions):
            if sessions is not None:
                await sessions.close()

    async def request(self, call: Call) -> bytes:
        """The content of a successful answer."""
        data = None if call.body is None else _encoded(call.body)
        limit = self._options.list_timeout if call.verb == "list" else self._options.timeout
        try:
            async with asyncio.timeout(limit):
                sessions = await self._opened()
                session = sessions.writes if call.writes else sessions.reads
                arguments = self._arguments(call)
                if data is not None:
                    arguments["headers"].append(("Content-Type", call.content_type))
                if call.method == "DELETE":
                    arguments["middlewares"] = (_send_once,)
                async with session.request(call.method, data=data, **arguments) as response:
                    content = await _content(call, response)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._no_answer(call, error, limit) from error
        if response.status >= 300:
            raise self._refused(call, response, content)
        return content

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        """The events as they arrive."""
        lines = responses.LineSplitter()
        try:
            response = await self._open_stream(call)
            try:
                async for chunk in response.content.iter_any():
                    for line in lines.feed(chunk):
                        yield responses.raw_event(line)
            finally:
                _give_up(response)
        except aiohttp.SocketTimeoutError as error:
            why = unanswered.words(error, self._options.silent_seconds)
            raise Silent(str(call), self._credentials.host, why) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._no_answer(call, error, self._options.silent_seconds) from error
        except ValueError as error:
            raise responses.unreadable(call, error) from error
        if lines.unfinished:
            raise OutcomeUnknown(f"{call}: the stream was cut in the middle of an event")

    async def _open_stream(self, call: Call) -> aiohttp.ClientResponse:
        watch = {"watch": "true", "allowWatchBookmarks": "true"}
        limit = {"timeoutSeconds": str(int(self._options.watch_seconds))}
        try:
            async with asyncio.timeout(self._options.timeout):
                session = (await self._opened()).watches
                arguments = self._arguments(call, {**watch, **call.query, **limit})
                response = await session.request("GET", timeout=self._silence, **arguments)
                if response.status < 300:
                    return response
                async with response:
                    raise self._refused(call, response, await response.read())
        except TimeoutError as error:
            raise self._no_answer(call, error, self._options.timeout) from error

    async def _opened(self) -> _Sessions:
        """The sessions, with refreshed credentials if these were due."""
        if not self._credentials.current():
            await self._credentials.refresh()
        certificate, sessions = self._credentials.certificates, self._sessions
        if sessions is None or sessions.certificate != certificate:
            plain = self._session(self._options.connections)
            fenced = fencing.sockets(self._may_write) if self._may_write else None
            writes = self._session(self._options.connections, fenced) if fenced else plain
            ended, self._former = self._former, sessions
            self._sessions = sessions = _Sessions(certificate, plain, writes, self._session(0, _probed))
            if ended is not None:
                await ended.close()
        return sessions

    def _session(self, limit: int, sockets: Sockets | None = None) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._credentials.tls or False, limit=limit, socket_factory=sockets
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            timeout=_QUICK,
            proxy=self._credentials.proxy,
        )

    def _arguments(self, call: Call, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The arguments that requests and watches have in common."""
        known = self._credentials
        asked = urlencode(query or call.query)
        others = () if self._options.impersonate else known.impersonation
        own = [("Authorization", known.authorization)] if known.authorization else []
        return {
            "url": URL(f"{known.host}{_path(call)}{asked and '?'}{asked}", encoded=True),
            "headers": [*own, *others],
            "allow_redirects": False,
            "server_hostname": known.server_name,
        }

    def _no_answer(self, call: Call, error: Exception, seconds: float) -> Unreachable:
        return Unreachable(str(call), self._credentials.host, unanswered.words(error, seconds))

    def _refused(self, call: Call, response: aiohttp.ClientResponse, content: bytes) -> Exception:
        if response.status == 401:
            self._credentials.invalidate()
        if responses.is_foreign_not_found(response.status, content):
            return Garbled(f"{call}: the answer 404 does not come from an API server")
        phrase = response.reason or "Unknown"
        error = responses.refusal(response.status, phrase, content, response.headers.get("Retry-After"))
        if call.writes and responses.leaves_write_open(error, content):
            return OutcomeUnknown(f"{call}: {error}")
        return error


class HttpClient(Client):
    """A client over HTTP; an async context manager that reads the credentials when it is entered."""

    def __init__(
        self,
        credentials: Credentials,
        options: HttpOptions = HttpOptions(),
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        self._server = (credentials, options)
        self._http = HttpTransport(credentials, options, may_write)
        super().__init__(self._http)

    @classmethod
    def from_kubeconfig(
        cls, path: str | None = None, context: str | None = None, options: HttpOptions = HttpOptions()
    ) -> Self:
        """A client configured by a kubeconfig: `path`, else $KUBECONFIG, else ~/.kube/config."""
        return cls(credentials.kubeconfig(path, context), options)

    @classmethod
    def in_cluster(cls, options: HttpOptions = HttpOptions()) -> Self:
        """A client configured by the service account of the pod in which this runs."""
        return cls(credentials.in_cluster(), options)

    def fenced(self, may_write: Callable[[], bool]) -> "HttpClient":
        """A client of the same server that sends no byte of a write unless `may_write()` is true at that moment.

        A write that is held back raises OutcomeUnknown. The client has connections of its own: close both.
        """
        return HttpClient(*self._server, may_write)

    async def __aenter__(self) -> Self:
        """Raises NoConfiguration if there are no usable credentials. Sends no request yet."""
        await self._http.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _content(call: Call, response: aiohttp.ClientResponse) -> bytes:
    """The content of the answer. Raises PageTooLong, without reading all of it, if a list's page is too long."""
    if call.verb != "list" or call.query.get("limit") == "1":
        return await response.read()
    chunks, size = list[bytes](), 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > LONGEST_PAGE:
            _give_up(response)
            raise PageTooLong(f"{call}: a page has more than {LONGEST_PAGE} bytes")
    return b"".join(chunks)


def _path(call: Call) -> str:
    named = call.verb != "create" or call.subresource
    namespace = quote(call.namespace, _NAME_CHARACTERS) if call.namespace else None
    name = quote(call.name, _NAME_CHARACTERS) if call.name and named else None
    return call.resource.path(namespace, name, call.subresource)


def _probed(address: AddrInfoType) -> socket.socket:
    """The socket of a watch, with TCP keepalive. The client sends nothing on it, so nothing else would tell a
    server that vanished, such as a machine without power, from one without events."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if hasattr(socket, name):  # depends on the platform
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _give_up(response: aiohttp.ClientResponse) -> None:
    """Aborts a stream: a TLS shutdown would outlive this client, whose connector forgets closing sockets."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


def _encoded(body: Mapping[str, Any]) -> bytes:
    """The body as JSON, with the same characters escaped as in Go.

    An API server stores opaque parameters as they were sent, and escapes these characters when it reads them: it
    would refuse any later patch of the object's metadata, because the spec seems to change with it.
    """
    return escaped(orjson.dumps(body, default=_plain))


def _plain(value: object) -> dict[Any, Any]:
    """A dictionary for orjson, which supports no other mappings."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
