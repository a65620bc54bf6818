"""Read-only views of workspaces: claims without a directory of their own, which show that of another claim.

The other claim, the source, is a named claim of the same namespace, or of the same pod. A view is on the node of
its source, and Parley keeps the source allocated as long as there are views of it (`Driver.uses`).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from parley.drivers.workspace_parameters import WorkspaceClass, WorkspaceParameters
from parley.sdk import ClaimRequest, Request

_SOURCE, _NAMED = "source", "claim"
_SHOWN = ("workspace", "bytes", "owner", "disk")
"""The fields that a view copies from its source's handle: whichever is mounted first makes the directory."""

_AWAITED = 10_000
"""The most sources that views wait for, by name. With more, any new workspace wakes all views."""

_Claim = ClaimRequest[WorkspaceParameters, WorkspaceClass]
_Request = Request[WorkspaceParameters, WorkspaceClass]


class Named(NamedTuple):
    """A claim by its namespace and name."""

    namespace: str
    name: str


class _Shown(NamedTuple):
    uid: str
    node: str
    handle: Mapping[str, Any]


class Views:
    """The workspaces that views can show, and the claims that views wait for."""

    def __init__(self) -> None:
        self._there: dict[Named, dict[str, _Shown]] = {}
        """Workspaces by claim name, then UID; the last one is shown. There may also be an earlier claim of that
        name that was deleted by force, and whose data its node has yet to remove."""
        self._names: dict[str, Named] = {}
        self._awaited: dict[Named, None] = {}
        self._changed: Callable[[], None] = _nobody

    async def follow(self, changed: Callable[[], None]) -> None:
        """Calls `changed` when a workspace that a view waits for is allocated."""
        self._changed = changed
        await asyncio.Event().wait()

    def hold(self, uid: str, node: str, handle: Mapping[str, Any], *, restored: bool = False) -> None:
        """Adds a claim's workspace on the node, unless the claim is generated: views can't name those. While
        claims are `restored`, the first one of a name is the existing claim, and stays the one shown."""
        if (name := _recorded_name(handle)) is None:
            return
        shown, others = {uid: _Shown(uid, node, handle)}, self._there.get(name, {})
        self._there[name] = {**shown, **others} if restored else {**others, **shown}
        self._names[uid] = name
        if len(self._awaited) >= _AWAITED:
            self._awaited.clear()
            self._changed()
        elif name in self._awaited:
            del self._awaited[name]
            self._changed()

    def release(self, uid: str) -> None:
        """Removes the claim's workspace. Idempotent."""
        if (name := self._names.pop(uid, None)) is None:
            return
        del self._there[name][uid]
        if not self._there[name]:
            del self._there[name]

    def _named(self, name: Named) -> _Shown | None:
        """The workspace that views of the claim show; None if it has none."""
        return next(reversed(self._there[name].values())) if name in self._there else None

    def rules(self, request: _Request) -> Iterator["ViewRule"]:
        """The rules for the request's views: each is on its source's node, or is allocated together with it."""
        if not (shown := request.once(sources)):
            return
        own = {Named(request.pod.namespace, claim.claim) for claim in request.claims if not claim.generated}
        for name in shown:
            there = self._named(name)
            if there is None and name not in own and len(self._awaited) < _AWAITED:
                self._awaited[name] = None
            if there is not None or name not in own:
                yield ViewRule(name, there)

    def shown(self, name: Named) -> Mapping[str, Any]:
        """The fields of a view's handle that follow from its source."""
        uid, _, handle = next(reversed(self._there[name].values()))
        return {**{key: handle[key] for key in _SHOWN if key in handle}, "readOnly": True, _SOURCE: uid}


def _nobody() -> None:
    """Does nothing: `follow` was not called yet."""


class ViewRule(NamedTuple):
    """The nodes that a view of the claim may use."""

    claim: Named
    there: _Shown | None

    @property
    def only(self) -> tuple[str, ...]:
        """The only node that the rule allows; none if the source has no workspace."""
        return (self.there.node,) if self.there is not None else ()

    def broken_by(self, node: str) -> str:
        """Why the view can't be on the node; "" if it can."""
        if self.there is None:
            return f"claim {self.claim.name}, the source, has no workspace yet"
        if self.there.handle.get("enforce", "Watch") != "Watch":
            return _own_file_system(self.claim.name)
        return "" if node == self.there.node else f"claim {self.claim.name} is on node {self.there.node}"


def sources(request: _Request) -> tuple[Named, ...]:
    """The sources of the request's views."""
    names = (view.parameters.source.claim for view in request.claims if view.parameters.source is not None)
    return tuple(Named(request.pod.namespace, name) for name in names)


def _own_file_system(name: str) -> str:
    return f"claim {name} has a file system of its own (enforce=Image), which can't be shown"


def misused(claim: _Claim, request: _Request) -> str:
    """Why a view's parameters can't be met, "" if they can."""
    asked = claim.parameters
    if asked.source is None:
        return ""
    of_pod = (other for other in request.claims if other.claim == asked.source.claim and not other.generated)
    if fault := next((_not_shown(other, claim) for other in of_pod), ""):
        return fault
    given = (("size", asked.size), ("group", asked.group), ("reserve", asked.reserve))
    fields = [name for name, value in given if value is not None]
    if asked.reclaim != "Delete":
        fields.append("reclaim")
    if not fields:
        return ""
    return f"claim {claim.claim} has a source, and no room of its own: leave out {' and '.join(fields)}, or source"


def _not_shown(source: _Claim, view: _Claim) -> str:
    """Why a view can never show this claim of the same pod, "" if it can."""
    if source.uid == view.uid:
        return f"source.claim={source.claim} of claim {view.claim} is the claim itself: name another one"
    if source.parameters.source is not None:
        return f"source.claim={source.claim} of claim {view.claim} is a view: name the claim that it shows"
    return "" if source.class_parameters.enforce == "Watch" else _own_file_system(source.claim)


def name_record(name: Named) -> Mapping[str, str]:
    """The fields of a named claim's allocation data by which views find it."""
    return {"namespace": name.namespace, _NAMED: name.name}


def _recorded_name(data: Mapping[str, Any]) -> Named | None:
    namespace, name = data.get("namespace"), data.get(_NAMED)
    return Named(namespace, name) if isinstance(namespace, str) and isinstance(name, str) else None


def source_of(data: Mapping[str, Any]) -> str | None:
    """The UID of the claim that a view shows, by the data of its allocation; None if it is no view."""
    uid = data.get(_SOURCE)
    return uid if isinstance(uid, str) else None
