"""A cluster of one moment behind HTTP, for commands that read one: lists and objects, no changes."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    EVENTS,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    Resource,
)
from parley.kube.memory import MemoryServer

KINDS: tuple[Resource[Any], ...] = (
    PODS,
    NODES,
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    RESOURCE_SLICES,
    CLASSES,
    CLAIMS,
    CLAIM_RELEASES,
    TEMPLATES,
    POD_SCHEDULINGS,
    EVENTS,
)
NAMESPACES = ("default", "team", "parley-system")

Answers = dict[str, bytes]
"""By path."""


def answers_of(server: MemoryServer, kinds: Sequence[Resource[Any]] = KINDS) -> Answers:
    """Every list and every object of the server."""
    answers: Answers = {}
    for resource in kinds:
        collection = server.store.collection(resource)
        kind = collection.resource
        lists: dict[str, list[Any]] = {kind.path(namespace): [] for namespace in (None, *NAMESPACES)}
        for (namespace, name), stored in collection.objects.items():
            answers[kind.path(namespace or None, name)] = stored.data
            lists[kind.path()].append(stored.body)
            if namespace:
                lists[kind.path(namespace)].append(stored.body)
        for path, items in lists.items():
            answers[path] = orjson.dumps({"metadata": {"resourceVersion": "1"}, "items": items})
    return answers


def _selected(content: bytes, selector: str) -> bytes:
    """The list with only the objects that a selector such as `metadata.name=NAME` selects."""
    found = orjson.loads(content)
    path, _, value = selector.partition("=")
    above, _, field = path.partition(".")
    found["items"] = [item for item in found["items"] if item[above].get(field) == value]
    return orjson.dumps(found)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # its end waits for all answers

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was refused something does not wait for the rest."""


@contextmanager
def served(
    answers: Answers,
    place: Path,
    namespace: str = "",
    refused: frozenset[str] = frozenset(),
    absent: bytes = orjson.dumps({"kind": "Status", "reason": "NotFound", "message": "not found"}),
) -> Iterator[Path]:
    """The path of a kubeconfig of the server. Plurals in `refused` are forbidden; `absent` is a 404's text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            content, code = answers.get(url.path), 200
            if refused & set(url.path.split("/")):
                code, content = 403, orjson.dumps({"reason": "Forbidden", "message": f"{url.path} is forbidden"})
            elif content is None:
                code, content = 404, absent
            elif selector := parse_qs(url.query).get("fieldSelector"):
                content = _selected(content, selector[0])
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    with _Server(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield kubeconfig_of(place / "config", http.server_address[1], namespace)
        finally:
            http.shutdown()


def kubeconfig_of(path: Path, port: int, namespace: str) -> Path:
    """Write one of a server at that port, with a token."""
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}
    user = {"name": "u", "user": {"token": "t"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
    path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    return path
