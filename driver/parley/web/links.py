"""Addresses of pages: parsing a request's path and query, and links between pages.

Links are relative to the page that they stand on, so that it all may be served below any path.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode

MOST_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class PageAddress:
    """A page: its path in parts ("pods", namespace, name), what of the query it understands, and how many folders
    below the first page's it seems to be."""

    parts: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    depth: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """The page's identity: equal for addresses of the same page."""
        return self.parts, tuple(sorted(self.query.items())), self.depth

    @property
    def page(self) -> int:
        """The number of the page of a long table, from 1 on."""
        text = self.query.get("page", "")
        return min(max(1, int(text)), MOST_PAGE) if text.isascii() and text.isdigit() else 1


_UNDERSTOOD = frozenset({"namespace", "state", "page", "nodes"})
_LONGEST = 253


def address(path: str, query: Mapping[str, str]) -> PageAddress:
    """Parses an encoded path and a query; unknown parts of the query are dropped."""
    known = {name: value[:_LONGEST] for name, value in query.items() if name in _UNDERSTOOD and value}
    parts = path.split("/")[1:]
    return PageAddress(tuple(unquote(part) for part in parts if part), known, len(parts) - 1)


@dataclass(frozen=True, slots=True)
class Links:
    """Links from the page at an address to others."""

    here: PageAddress

    def _to(self, *parts: str) -> str:
        up = "../" * self.here.depth
        return (up + "/".join(quote(part, safe="") for part in parts)) or "./"

    @property
    def home(self) -> str:
        """The first page, with all pods and classes."""
        return self._to()

    def static(self, name: str) -> str:
        """A static file."""
        return self._to("static", name)

    def pod(self, namespace: str, name: str) -> str:
        """A pod's page."""
        return self._to("pods", namespace, name)

    def titled(self, title: str) -> str:
        """The page of a pod that is named as "namespace/name"."""
        namespace, _, name = title.partition("/")
        return self.pod(namespace, name)

    def class_(self, name: str) -> str:
        """A class's page."""
        return self._to("classes", name)

    def node(self, name: str) -> str:
        """A node's page."""
        return self._to("nodes", name)

    def changed(self, **query: str) -> str:
        """This page with another query; a parameter with the value "" is removed."""
        left = {name: value for name, value in {**self.here.query, **query}.items() if value}
        return f"?{urlencode(left)}"
