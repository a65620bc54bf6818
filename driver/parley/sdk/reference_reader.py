"""Reads the objects that `parametersRef` names, one GET each, when somebody negotiates with what they hold.

Nothing is watched or listed. `get` answers from memory; what is missing there, or older than the one who asks, is
read, and its topic is woken afterwards. What can't be read, or used, is read again after pauses that double, as
long as somebody asks. Who names many objects waits for them alone: each namespace has its own share of requests
and of memory, and so have the classes.

    due --read--> known --asked by somebody newer, or MAX_AGE_SECONDS old--> due
                  failed or doubted --pause over, or as above--> due
                  not asked for KEEP_SECONDS, and nobody waits for a read --> forgotten
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
from parley.sdk.referenced import NotRead, ParametersObject, Unfit, parameters_in, room_topic, version_in

READERS = 8
"""Requests at a time, each for another namespace."""

INTERVAL_SECONDS = 0.1
"""At the least, between two requests for one namespace's claims."""

MAX_OBJECTS = 256
"""Of one namespace's claims, in memory at a time."""

MAX_AGE_SECONDS = 60.0
"""Older than that, what is known is read again before it is used."""

KEEP_SECONDS = 120.0
"""So long what nobody asks for is remembered."""

RETRIES = Backoff(first=1.0, longest=60.0)

_ACCOUNT = re.compile(r'User "([^"]+)"')


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why it is not known what the object holds."""

    code: str
    message: str


@dataclass(slots=True)
class _Entry:
    """One object. It is to be read when it is `due`; `reading` is when the read under way began, `again` whether
    somebody newer asked since. `known_at` is when the last read that ended began, with `content` (JSON) or a
    `failure`. `awaited`: somebody asks again only after the next read. Times are on the event loop's clock."""

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
    """What is remembered for one payer's claims, and when the next request for them may begin."""

    entries: dict[ParametersObject, _Entry] = field(default_factory=dict)
    next_at: float = 0.0


class ReferenceReader:
    """What referenced objects hold; implements `References`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._shares: dict[str, _Share] = {}
        self._queue: WorkQueue[str] = WorkQueue(fields=lambda payer: {"parameters_of": payer or "classes"})
        self._listeners: list[Callable[[Topic], None]] = []

    def __len__(self) -> int:
        return sum(len(share.entries) for share in self._shares.values())

    def subscribe(self, listener: Callable[[Topic], None]) -> None:
        """Call the listener with an object's topic after each read of it."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Read until cancelled."""
        await run_workers(self._queue, self._sync, READERS)

    def get(self, wanted: ParametersObject, since: float) -> Mapping[str, Any]:
        """What the object held at that time or later, and not longer ago than MAX_AGE_SECONDS. Raises NotRead."""
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
            raise NotRead(entry.failure.code, entry.failure.message, wanted.topic)
        if entry.known_at < oldest:
            message = f"{wanted} is being read"
            raise NotRead(reasons.PARAMETERS_NOT_READ, message, wanted.topic, transient=True)
        content: Mapping[str, Any] = orjson.loads(entry.content)
        return content

    def doubt(self, wanted: ParametersObject) -> None:
        """The driver does not understand what the object holds: read it again after a pause."""
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
                raise NotRead(
                    reasons.PARAMETERS_NOT_READ,
                    f"{wanted} is not read yet: {whose} name {MAX_OBJECTS} other objects in parametersRef, which "
                    "is the most that is read at a time: correct or delete those that wait",
                    room_topic(wanted.payer),
                )
            share.entries[wanted] = _Entry(due=now, asked=now)
        return share.entries[wanted]

    async def _sync(self, payer: str) -> Requeue | None:
        """Read what is due first of the payer's objects, or forget those that nobody asks for."""
        share, now = self._shares.get(payer), _now()
        if share is None:
            return None
        self._forget_idle(payer, share, now)
        if not share.entries:
            if share.next_at <= now:
                del self._shares[payer]
                return None
            return Requeue(share.next_at - now)
        wanted, entry = min(share.entries.items(), key=lambda one: one[1].due)
        begin = max(entry.due, share.next_at)
        if begin <= now:
            share.next_at = begin = now + INTERVAL_SECONDS
            await self._read(wanted, entry, now)
        idle = (one.asked + KEEP_SECONDS for one in share.entries.values() if not one.awaited)
        return Requeue(max(min((begin, *idle)) - _now(), 0.0))

    def _forget_idle(self, payer: str, share: _Share, now: float) -> None:
        full = len(share.entries) >= MAX_OBJECTS
        idle = [
            wanted for wanted, one in share.entries.items() if one.asked + KEEP_SECONDS <= now and not one.awaited
        ]
        for wanted in idle:
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
        except Unfit as error:
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
    """The reason code and the message for the API server's answer: what to do, for whoever named the object."""
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
