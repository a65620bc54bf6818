"""Makes the page, or the data, that an address asks for. What can't be answered becomes a page that says so."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import orjson

from parley.api.models import PodScheduling
from parley.api.resources import POD_SCHEDULINGS
from parley.explain import overview
from parley.explain.explaining import Told, explain_in, tell
from parley.explain.faults import NothingToTell
from parley.explain.model import wire
from parley.explain.reading import World
from parley.kube.faults import Unanswerable, as_sentences
from parley.web import facts
from parley.web.links import Address, Links
from parley.web.markup import Node, html
from parley.web.timeline import timeline
from parley.web.views.holders import class_, node
from parley.web.views.home import home
from parley.web.views.parts import document, problem, warnings
from parley.web.views.pod import pod
from parley.web.worlds import Worlds

NOT_FOUND = 404
UNAVAILABLE = 503
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Of objects: what a request to the API server may be made of."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title, what is in <main>, and a version that tells these apart from others."""

    title: str
    main: str
    version: str
    status: int = 200

    def whole(self, links: Links) -> str:
        """The document."""
        return document(self.title, self.main, links, self.version)


@dataclass(frozen=True, slots=True)
class _Content:
    title: str
    data: Callable[[], Any]
    main: Callable[[Links], list[Node]]


class _NoSuchPage(NothingToTell):
    """Raised for an address that no page has."""


async def page(worlds: Worlds, address: Address) -> Page:
    """The page at the address, whatever it has to say."""
    links = Links(address)

    async def rendered() -> Page:
        content = _content(world, told, address)
        return _page(content.title, [warnings(trouble, world.unread), *content.main(links)])

    try:
        world, told = await _read(worlds, address)
        trouble = worlds.trouble
        return await worlds.aside(rendered)
    except Unanswerable as error:
        found = not isinstance(error, NothingToTell)
        title, status = ("No answer", UNAVAILABLE) if found else ("Not found", NOT_FOUND)
        return _page(title, problem(title, str(error), links), status)


async def data(worlds: Worlds, address: Address) -> tuple[int, bytes]:
    """The same as JSON, with its status; an object with `error` if it can't be answered."""

    async def encoded() -> bytes:
        found = {**_content(world, told, address).data(), "unread": world.unread, "now": overview.now(world)}
        return orjson.dumps(wire(found), option=orjson.OPT_INDENT_2)

    try:
        world, told = await _read(worlds, address)
        return 200, await worlds.aside(encoded)
    except Unanswerable as error:
        status = NOT_FOUND if isinstance(error, NothingToTell) else UNAVAILABLE
        return status, orjson.dumps({"error": str(error)})


def _page(title: str, main: list[Node], status: int = 200) -> Page:
    text = html(main)
    version = sha256(f"{title}\0{text}".encode()).hexdigest()[:32]
    return Page(f"{title} - Parley", text, version, status)


async def _read(worlds: Worlds, address: Address) -> tuple[World, Told | None]:
    """The world, and what only a pod's page shows of that pod."""
    told = None
    if not all(_NAME.fullmatch(part) for part in address.parts):
        raise _NoSuchPage("there is no such page")
    if address.parts[:1] == ("pods",) and len(address.parts) == 3:
        with as_sentences():
            told = await tell(worlds.client, *address.parts[1:])
    return await worlds.world(), told


def _content(world: World, told: Told | None, address: Address) -> _Content:
    """Raises NothingToTell if there is nothing at the address."""
    match address.parts:
        case ():
            return _home(world)
        case ("pods", namespace, name) if told is not None:
            return _pod(world, told, namespace, name)
        case ("classes", name):
            return _class(world, name)
        case ("nodes", name):
            return _node(world, name)
    raise _NoSuchPage("there is no such page")


def _home(world: World) -> _Content:
    line, classes, now = overview.line(world, None), overview.classes(world), overview.now(world)
    pods = facts.pods(world, line)
    return _Content(
        "Pods and classes",
        lambda: {"pods": pods, "classes": classes, "waiting": line},
        lambda links: home(pods, classes, now, links),
    )


def _pod(world: World, told: Told, namespace: str, name: str) -> _Content:
    if told.scheduling is not None:
        whole: PodScheduling = POD_SCHEDULINGS.decode(orjson.dumps(told.scheduling))
        world = _with(world, (namespace, name), whole)
    explained = explain_in(world, told)
    moments = timeline(told, explained)
    return _Content(
        f"Pod {explained.title}",
        lambda: {"pods": [explained], "timeline": moments},
        lambda links: pod(explained, moments, links),
    )


def _with(world: World, key: tuple[str, str], scheduling: PodScheduling) -> World:
    """The world with this PodScheduling as a whole."""
    return replace(world, schedulings={**world.schedulings, key: scheduling})


def _class(world: World, name: str) -> _Content:
    found, now = facts.class_facts(world, name), overview.now(world)
    if found is None:
        raise _NoSuchPage(f"there is no class {name}: see `kubectl get prclasses`")
    return _Content(
        f"Class {name}",
        lambda: {"classes": [found.row], "uses": found.uses, "waiting": found.waiting},
        lambda links: class_(found, now, links),
    )


def _node(world: World, name: str) -> _Content:
    found, now = facts.node_facts(world, name), overview.now(world)
    if found is None:
        raise _NoSuchPage(f"there is no node {name}, or nodes may not be read")
    return _Content(f"Node {name}", lambda: {"nodes": [found]}, lambda links: node(found, now, links))
