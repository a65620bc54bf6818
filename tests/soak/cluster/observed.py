"""An API server in memory that reports each change as it happens, and lets no dead or deposed process write."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.soak.cluster.processes import WHO
from tests.soak.rules.mirrors import nodes_of
from tests.support.trouble import LATE_WRITE

from parley.api.resources import LEASES, Resource
from parley.kube.client import Forbidden, OutcomeUnknown
from parley.kube.memory import MemoryServer
from parley.kube.memory.store import Collection, Store
from parley.kube.memory.watch_cache import Change, Stored

HISTORY = 1000
MOST_CHARACTERS = 300
MOST_AT_ONCE, AT_ONCE_SECONDS = 2000, 10.0
"""Writes within so many seconds; more go in circles."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change of the API's state: when, by whom, of which kind."""

    seconds: float
    who: str
    resource: Resource[Any]
    change: Change

    @property
    def late(self) -> bool:
        return self.who.endswith("(late)")


Observer = Callable[[Step], None]


class ObservedServer(MemoryServer):
    """`observer` is called within each write, before anybody can see it. `fences` ask a process's own knowledge
    whether bytes may still leave it, as the HTTP client does."""

    def __init__(self, clock: Callable[[], datetime], seed: int, observer: Observer, remembered: int) -> None:
        super().__init__(clock, history=HISTORY, bookmark_interval=1800, seed=seed)
        self.store = Store(HISTORY, self._changed)
        self.fences: dict[str, Callable[[], bool]] = {}
        self.forbids_evictions = False
        """Whether controllers' accounts lack the right to evict."""
        self.steps = 0
        """Changes so far, those of leases not counted: they are too cheap to count."""
        self.controllers_steps = 0
        """Those of them that controllers made."""
        self.at_once, self._since = 0, 0.0
        """Writes since then, those that change nothing included."""
        self._observer = observer
        self.goes_in_circles: Callable[[], None] = lambda: None
        """Called when there were `MOST_AT_ONCE` writes within `AT_ONCE_SECONDS`."""
        self._told: deque[Step | str] = deque(maxlen=remembered)
        self._collector = copy_context()
        self._collector.run(WHO.set, "garbage collector")

    def note(self, text: str) -> None:
        """Remember among the steps what is none: a kill, an outage."""
        self._told.append(f"{_now():10.2f}  -- {text}")

    def last(self) -> str:
        """The latest steps as text, oldest first."""
        return "\n".join(entry if isinstance(entry, str) else described(entry) for entry in self._told)

    def _changed(self, collection: Collection, change: Change) -> None:
        self._collector.run(self._garbage.observe, collection, change)
        step = Step(_now(), WHO.get(), collection.resource, change)
        if collection.resource.plural != LEASES.plural:
            self.steps += 1
            self.controllers_steps += step.who.startswith("controller")
            self._told.append(step)
        self._observer(step)

    def _check_fence(self, resource: Resource[Any]) -> None:
        if _now() > self._since + AT_ONCE_SECONDS:
            self.at_once, self._since = 0, _now()
        self.at_once += 1
        if self.at_once == MOST_AT_ONCE:
            self.goes_in_circles()
        may_send = self.fences.get(WHO.get())
        if may_send is not None and resource.plural != LEASES.plural and not _late() and not may_send():
            raise OutcomeUnknown("no longer allowed to send, and not sent")

    def create(self, resource: Resource[Any], *args: Any, **kwargs: Any) -> Stored:
        self._check_fence(resource)
        return super().create(resource, *args, **kwargs)

    def patch(self, resource: Resource[Any], *args: Any, **kwargs: Any) -> Stored:
        self._check_fence(resource)
        return super().patch(resource, *args, **kwargs)

    def delete(self, resource: Resource[Any], *args: Any, **kwargs: Any) -> None:
        self._check_fence(resource)
        super().delete(resource, *args, **kwargs)

    def post(
        self, resource: Resource[Any], name: str, subresource: str, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        self._check_fence(resource)
        if subresource == "eviction" and self.forbids_evictions:
            raise Forbidden(
                403,
                "Forbidden",
                f'pods "{name}" is forbidden: User "parley" cannot create resource "pods/eviction"',
            )
        return super().post(resource, name, subresource, *args, **kwargs)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _late() -> bool:
    task = asyncio.current_task() if asyncio.get_running_loop().is_running() else None
    return task is not None and task.get_name() == LATE_WRITE


def described(step: Step) -> str:
    """One line: when, who, what, and what changed."""
    change, kind = step.change, step.resource
    verb = "creates" if change.old is None else "deletes" if change.new is None else "changes"
    meta = change.last.meta
    group = "builtin " if kind.group == "resource.k8s.io" else ""
    place = f"{group}{kind.kind} {meta['name']}"
    return f"{step.seconds:10.2f}  {change.version} {step.who} {verb} {place}{_difference(change)}"


def _difference(change: Change) -> str:
    if change.new is None:
        return ""
    old = _flat(change.old.body) if change.old is not None else {}
    new = _flat(change.new.body)
    changes = [f"{path}={value}" for path, value in new.items() if old.get(path) != value]
    changes += [f"no {path}" for path in old if path not in new]
    text = ", ".join(changes)
    return f": {text[:MOST_CHARACTERS]}" if text else ""


def _flat(body: dict[str, Any]) -> dict[str, str]:
    """The parts of an object that are worth showing, two levels deep, readable."""
    flat: dict[str, str] = {}
    for name, value in body.items():
        if name == "metadata":
            flat.update({f"{part}": str(value[part]) for part in _TELLING if value.get(part)})
        elif name in ("spec", "status"):
            flat.update({f"{name}.{inner}": _short(inner, part) for inner, part in value.items()})
        elif name not in ("apiVersion", "kind"):
            flat[name] = str(value)
    return flat


_TELLING = ("deletionTimestamp", "finalizers")


def _short(name: str, value: Any) -> str:
    """Allocations, users and claims in short; the rest as it is."""
    if name == "allocation" and "devices" in value:
        record = value["devices"].get("results") or ()
        devices = " ".join(f"{r['pool']}/{r['device']}" for r in record)
        return f"<{devices} on {' '.join(nodes_of(value))}>"
    if name == "reservedFor":
        return f"<{' '.join(user['name'] for user in value)}>"
    if name == "resourceClaimStatuses":
        return f"<{' '.join(status.get('resourceClaimName', '') for status in value)}>"
    if name == "conditions":
        return f"<{'; '.join(' '.join(_words(c)) for c in value)}>"
    return str(value)


def _words(condition: dict[str, Any]) -> list[str]:
    return [condition[part] for part in ("type", "status", "reason", "message") if condition.get(part)]
