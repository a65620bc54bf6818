"""Elements of a page, and their HTML. All texts and attributes are escaped; no raw HTML is possible."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Union

_VOID = frozenset({"meta", "link", "input", "br"})

Node = Union[str, "Element", None, Iterable["Node"]]
"""A text, an element, nothing, or several of these."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element. An attribute that is True has no value, one that is False or None is left out."""

    tag: str
    attributes: Mapping[str, str | bool | None]
    children: tuple[Node, ...]


def h(tag: str, *children: Node, **attributes: str | bool | None) -> Element:
    """An element. `class_` is written class, `data_code` data-code."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    return Element(tag, named, children)


def html(*nodes: Node) -> str:
    """The HTML of the nodes."""
    return "".join(part for node in nodes for part in _parts(node))


def _parts(node: Node) -> Iterator[str]:
    if node is None:
        return
    if isinstance(node, str):
        yield escape(node, quote=False)
    elif isinstance(node, Element):
        yield f"<{node.tag}{''.join(_attributes(node.attributes))}>"
        if node.tag not in _VOID:
            for child in node.children:
                yield from _parts(child)
            yield f"</{node.tag}>"
    else:
        for child in node:
            yield from _parts(child)


def _attributes(attributes: Mapping[str, str | bool | None]) -> Iterator[str]:
    for name, value in attributes.items():
        if value is True:
            yield f" {name}"
        elif isinstance(value, str):
            yield f' {name}="{escape(value)}"'
