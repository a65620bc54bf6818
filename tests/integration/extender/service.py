"""What a Kubernetes Service does for the extender: calls reach whichever controller is ready, which is the leader.

Runs in threads of its own, as tests have an event loop each and the scheduler outlives them. Counts the calls.
"""

import http.client
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.cluster.watching import LIMIT

_READINESS = 2.0
_ANSWER = 65.0
_PAUSE = 0.05


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    """It serves within the block."""
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Service:
    """`address` is where schedulers call; `backends` are the addresses of controllers, ready or not."""

    def __init__(self) -> None:
        self.backends: Sequence[str] = ()
        self.calls: Counter[str] = Counter()
        """By verb, answered or not."""
        self._leader = ""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = service.forward(self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                """Scheduler and controller have logs of their own."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    @classmethod
    @contextmanager
    def run(cls) -> "Iterator[Service]":
        """Serves within the block."""
        service = cls()
        with serving(service._server):
            yield service

    def forward(self, path: str, body: bytes) -> tuple[int, bytes]:
        """The leader's answer; 503 where there is none."""
        self.calls[path.removeprefix("/")] += 1
        leader = self._leader or self._ready()
        if leader:
            try:
                status, answer = _exchange(leader, "POST", path, body, _ANSWER)
            except (OSError, http.client.HTTPException):
                status, answer = 503, b""
            self._leader = leader if status == 200 else ""
            return status, answer
        return 503, b""

    def forget(self) -> None:
        """Whoever was the leader."""
        self._leader = ""

    def wait_ready(self) -> None:
        """Return when a backend is ready. Raises AssertionError."""
        deadline = time.monotonic() + LIMIT
        while not self._ready():
            assert time.monotonic() < deadline, f"none of the controllers at {self.backends} became ready"
            time.sleep(_PAUSE)

    def _ready(self) -> str:
        return next((backend for backend in self.backends if _is_ready(backend)), "")


def _is_ready(address: str) -> bool:
    try:
        return _exchange(address, "GET", "/readyz", b"", _READINESS)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _exchange(address: str, method: str, path: str, body: bytes, timeout: float) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request(method, path, body or None, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
