"""Renders the page, or the data, for an address. Requests that can't be answered get an error page."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from parley.explain import overview
from parley.explain.errors import NothingToExplain, Unanswerable, readable_errors
from parley.explain.explaining import PodObjects, explain_in, read_pod
from parley.explain.model import wire
from parley.explain.snapshot import Snapshot
from parley.kube.cache import Key
from parley.web import details
from parley.web.links import Links, PageAddress
from parley.web.markup import Node, html
from parley.web.snapshots import Snapshots
from parley.web.timeline import timeline
from parley.web.views.holders import class_, node
from parley.web.views.home import home
from parley.web.views.parts import document, problem, warnings
from parley.web.views.pod import pod

NOT_FOUND = 404
UNAVAILABLE = 503
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Of objects: what a request to the API server may be made of."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title, the content of <main>, and a version that changes with these."""

    title: str
    main: str
    version: str
    status: int = 200

    def whole(self, links: Links) -> str:
        """The whole HTML document."""
        return document(self.title, self.main, links, self.version)


@dataclass(frozen=True, slots=True)
class _Content:
    title: str
    data: Callable[[], Any]
    main: Callable[[Links], list[Node]]


class _NoSuchPage(NothingToExplain):
    """Raised for an address that has no page."""


async def page(snapshots: Snapshots, address: PageAddress) -> Page:
    """The page at the address; an error page if it can't be rendered."""
    links = Links(address)

    async def rendered() -> Page:
        content = _content(snapshot, objects, address)
        return _page(content.title, [warnings(trouble, snapshot.unread), *content.main(links)])

    try:
        snapshot, objects = await _read(snapshots, address)
        trouble = snapshots.trouble
        return await snapshots.aside(rendered)
    except Unanswerable as error:
        found = not isinstance(error, NothingToExplain)
        title, status = ("No answer", UNAVAILABLE) if found else ("Not found", NOT_FOUND)
        return _page(title, problem(title, str(error), links), status)


async def data(snapshots: Snapshots, address: PageAddress) -> tuple[int, bytes]:
    """The data of the page as JSON, with the HTTP status; an object with `error` if it can't be answered."""

    async def encoded() -> bytes:
        found = {
            **_content(snapshot, objects, address).data(),
            "unread": snapshot.unread,
            "now": overview.now(snapshot),
        }
        return orjson.dumps(wire(found), option=orjson.OPT_INDENT_2)

    try:
        snapshot, objects = await _read(snapshots, address)
        return 200, await snapshots.aside(encoded)
    except Unanswerable as error:
        status = NOT_FOUND if isinstance(error, NothingToExplain) else UNAVAILABLE
        return status, orjson.dumps({"error": str(error)})


def _page(title: str, main: list[Node], status: int = 200) -> Page:
    text = html(main)
    version = sha256(f"{title}\0{text}".encode()).hexdigest()[:32]
    return Page(f"{title} - Parley", text, version, status)


async def _read(snapshots: Snapshots, address: PageAddress) -> tuple[Snapshot, PodObjects | None]:
    """Reads the snapshot and, for a pod's page, the pod's own objects."""
    objects = None

    async def pods() -> Iterable[Key]:
        return (await snapshots.snapshot()).pods

    if not all(_NAME.fullmatch(part) for part in address.parts):
        raise _NoSuchPage("there is no such page")
    if address.parts[:1] == ("pods",) and len(address.parts) == 3:
        with readable_errors():
            objects = await read_pod(snapshots.client, *address.parts[1:], known=pods)
    return await snapshots.snapshot(), objects


def _content(snapshot: Snapshot, objects: PodObjects | None, address: PageAddress) -> _Content:
    """Raises NothingToTell if there is nothing at the address."""
    match address.parts:
        case ():
            return _home(snapshot)
        case ("pods", _, _) if objects is not None:
            return _pod(snapshot, objects)
        case ("classes", name):
            return _class(snapshot, name)
        case ("nodes", name):
            return _node(snapshot, name)
    raise _NoSuchPage("there is no such page")


def _home(snapshot: Snapshot) -> _Content:
    line, classes, now = overview.waits(snapshot, None), overview.classes(snapshot), overview.now(snapshot)
    pods = details.pods(snapshot, line)
    return _Content(
        "Pods and classes",
        lambda: {"pods": pods, "classes": classes, "waiting": line},
        lambda links: home(pods, classes, now, links),
    )


def _pod(snapshot: Snapshot, objects: PodObjects) -> _Content:
    explained = explain_in(snapshot, objects)
    moments = timeline(objects, explained)
    return _Content(
        f"Pod {explained.title}",
        lambda: {"pods": [explained], "timeline": moments},
        lambda links: pod(explained, moments, links),
    )


def _class(snapshot: Snapshot, name: str) -> _Content:
    found, now = details.class_details(snapshot, name), overview.now(snapshot)
    if found is None:
        raise _NoSuchPage(f"there is no class {name}: see `kubectl get prclasses`")
    return _Content(
        f"Class {name}",
        lambda: {"classes": [found.row], "uses": found.uses, "waiting": found.waiting},
        lambda links: class_(found, now, links),
    )


def _node(snapshot: Snapshot, name: str) -> _Content:
    found, now = details.node_details(snapshot, name), overview.now(snapshot)
    if found is None:
        raise _NoSuchPage(f"there is no node {name}, or nodes may not be read: see `kubectl get nodes`")
    return _Content(f"Node {name}", lambda: {"nodes": [found]}, lambda links: node(found, now, links))
