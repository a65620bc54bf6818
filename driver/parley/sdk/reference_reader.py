"""Reads the objects that `parametersRef` names, one GET each, when their parameters are needed.

Nothing is watched or listed. `get` answers from memory; an object that is missing there, or was read before the
requested time, is read, and its topic is woken afterwards. Objects that can't be read or used are read again after
pauses that double, as long as they are requested. A namespace that refers to many objects delays only itself: each
has its own share of requests and of memory, and so have the classes.

    due --read--> known --requested since a later time, or MAX_AGE_SECONDS old--> due
                  failed or doubted --pause over, or as above--> due
                  not requested for KEEP_SECONDS, and nobody waits for a read --> forgotten
"""

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from parley.api import reasons
from parley.kube.backoff import Backoff
from parley.kube.client import ApiError, Call, Client, Forbidden, NotFound, OutcomeUnknown
from parley.kube.queue import Requeue, WorkQueue, run_workers
from parley.negotiation.waiting import Topic
from parley.sdk.referenced import (
    InvalidParametersObject,
    ParametersObject,
    ParametersUnavailable,
    parameters_in,
    room_topic,
    version_in,
)

READERS = 8
"""Concurrent requests, each for another namespace."""

INTERVAL_SECONDS = 0.1
"""The least time between two requests for one namespace's claims."""

MAX_OBJECTS = 256
"""The most objects of one namespace's claims in memory."""

MAX_AGE_SECONDS = 60.0
"""The age from which an object is read again before it is used."""

KEEP_SECONDS = 120.0
"""How long an object stays in memory without being requested."""

RETRIES = Backoff(first=1.0, longest=60.0)

_ACCOUNT = re.compile(r'User "([^"]+)"')


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why the content of an object is not known: a reason code and a message."""

    code: str
    message: str


@dataclass(slots=True)
class _Entry:
    """The cache entry of one object. `due` is the time of its next read, `asked` that of the last request for it;
    `reading` is when the read under way began, `again` whether it is too old for a request that came since.
    `known_at` is when the last finished read began, with `content` (JSON) or a `failure`. `awaited`: pods or
    claims wait for the next read, and ask again only after it. Times are on the event loop's clock."""

    due: float
    asked: float
    reading: float | None = None
    again: bool = False
    known_at: float = -math.inf
    version: str = ""
    content: bytes = b""
    failure: _Failure | None = None
    failures: int = 0
    awaited: bool = False


@dataclass(slots=True)
class _Share:
    """The cache entries of one payer's objects, and when the next request for one of them may begin."""

    entries: dict[ParametersObject, _Entry] = field(default_factory=dict)
    next_at: float = 0.0


class ReferenceReader:
    """Reads and caches referenced objects; implements `References`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._shares: dict[str, _Share] = {}
        self._queue: WorkQueue[str] = WorkQueue(fields=lambda payer: {"parameters_of": payer or "classes"})
        self._listeners: list[Callable[[Topic], None]] = []

    def __len__(self) -> int:
        return sum(len(share.entries) for share in self._shares.values())

    def subscribe(self, listener: Callable[[Topic], None]) -> None:
        """Calls the listener with an object's topic after each read of the object."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Reads due objects until cancelled."""
        await run_workers(self._queue, self._sync, READERS)

    def get(self, wanted: ParametersObject, since: float) -> Mapping[str, Any]:
        """The object's parameters, read at that time or later, and at most MAX_AGE_SECONDS ago. Raises
        ParametersUnavailable."""
        now = _now()
        entry = self._entry(wanted, now)
        entry.asked = now
        oldest = max(since, now - MAX_AGE_SECONDS)
        if entry.known_at < oldest:
            if entry.reading is not None:
                entry.again |= entry.reading < oldest
            else:
                entry.due = min(entry.due, now)
                self._queue.add(wanted.payer)
        entry.awaited |= entry.failure is not None or entry.known_at < oldest
        if entry.failure is not None:
            raise ParametersUnavailable(entry.failure.code, entry.failure.message, wanted.topic)
        if entry.known_at < oldest:
            message = f"{wanted} is being read"
            raise ParametersUnavailable(reasons.PARAMETERS_NOT_READ, message, wanted.topic, transient=True)
        content: Mapping[str, Any] = orjson.loads(entry.content)
        return content

    def reread_later(self, wanted: ParametersObject) -> None:
        """Has the object read again after a pause: the driver does not understand its parameters."""
        share = self._shares.get(wanted.payer)
        entry = share.entries.get(wanted) if share is not None else None
        if entry is not None:
            entry.awaited = True
        if entry is not None and entry.reading is None and entry.due == math.inf:
            entry.failures += 1
            entry.due = _now() + RETRIES.delay(entry.failures)
            self._queue.add(wanted.payer)

    def _entry(self, wanted: ParametersObject, now: float) -> _Entry:
        share = self._shares.setdefault(wanted.payer, _Share())
        if wanted not in share.entries:
            if len(share.entries) >= MAX_OBJECTS:
                whose = f"claims of namespace {wanted.payer}" if wanted.payer else "classes"
                raise ParametersUnavailable(
                    reasons.PARAMETERS_NOT_READ,
                    f"{wanted} is not read yet: {whose} name {MAX_OBJECTS} other objects in parametersRef, which "
                    "is the most that is read at a time: correct or delete those that wait",
                    room_topic(wanted.payer),
                )
            share.entries[wanted] = _Entry(due=now, asked=now)
        return share.entries[wanted]

    async def _sync(self, payer: str) -> Requeue | None:
        """Reads the payer's object that is due first, if its time has come, and forgets those not requested."""
        share, now = self._shares.get(payer), _now()
        if share is None:
            return None
        self._forget_idle(payer, share, now)
        if not share.entries:
            if share.next_at <= now:
                del self._shares[payer]
                return None
            return Requeue(share.next_at - now)
        wanted, entry = min(share.entries.items(), key=lambda item: item[1].due)
        begin = max(entry.due, share.next_at)
        if begin <= now:
            share.next_at = begin = now + INTERVAL_SECONDS
            await self._read(wanted, entry, now)
        forget = (entry.asked + KEEP_SECONDS for entry in share.entries.values() if not entry.awaited)
        return Requeue(max(min((begin, *forget)) - _now(), 0.0))

    def _forget_idle(self, payer: str, share: _Share, now: float) -> None:
        full = len(share.entries) >= MAX_OBJECTS
        for wanted, entry in [*share.entries.items()]:
            if entry.asked + KEEP_SECONDS <= now and not entry.awaited:
                del share.entries[wanted]
        if full and len(share.entries) < MAX_OBJECTS:
            self._wake(room_topic(payer))

    async def _read(self, wanted: ParametersObject, entry: _Entry, now: float) -> None:
        entry.reading, entry.again = now, False
        try:
            await self._fetch(wanted, entry)
        finally:
            entry.reading = None
        entry.known_at, entry.awaited = now, False
        if entry.failure is not None:
            entry.failures += 1
        pause = RETRIES.delay(entry.failures) if entry.failure is not None else math.inf
        entry.due = now if entry.again else now + pause
        self._wake(wanted.topic)

    async def _fetch(self, wanted: ParametersObject, entry: _Entry) -> None:
        call = Call("get", wanted.resource, wanted.namespace or None, wanted.name)
        version, content = "", b""
        try:
            answer = await self._client.request(call)
            version = version_in(answer)
            if version and version == entry.version:
                return
            content, failure = parameters_in(wanted, answer), None
        except InvalidParametersObject as error:
            failure = _Failure(reasons.PARAMETERS_INVALID, f"{wanted} {error}")
        except (ApiError, OutcomeUnknown) as error:
            failure = _Failure(*why_not_read(wanted, error))
        if (version, _code(failure)) != (entry.version, _code(entry.failure)):
            entry.failures = 0
        entry.version, entry.content, entry.failure = version, content, failure

    def _wake(self, topic: Topic) -> None:
        for listener in self._listeners:
            listener(topic)


def _code(failure: _Failure | None) -> str:
    return failure.code if failure is not None else ""


def _now() -> float:
    return asyncio.get_running_loop().time()


def why_not_read(wanted: ParametersObject, error: ApiError | OutcomeUnknown) -> tuple[str, str]:
    """The reason code and message for a failed read; the message tells the owner of the reference what to do."""
    resource = wanted.resource
    if isinstance(error, NotFound) and "could not find the requested resource" in error.message:
        message = f"the API server knows no {resource.plural} of {resource.api_version}: install its CRD"
        return reasons.PARAMETERS_NOT_FOUND, message
    if isinstance(error, NotFound):
        return reasons.PARAMETERS_NOT_FOUND, f"{wanted} does not exist: create it"
    if isinstance(error, Forbidden):
        named = _ACCOUNT.search(error.message)
        account = named[1] if named else "of Parley"
        where = f" in namespace {wanted.namespace}" if wanted.namespace else ""
        message = (
            f"account {account} may not read {wanted}: grant it the verb get on the resource {resource.plural} of "
            f"the apiGroup {resource.group!r}{where}"
        )
        return reasons.PARAMETERS_FORBIDDEN, message
    text = error.message if isinstance(error, ApiError) else str(error)
    return reasons.PARAMETERS_NOT_READ, f"{wanted} could not be read: {text}; it is tried again"
