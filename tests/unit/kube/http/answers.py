"""Answers of a server, and the types of what starts one."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from parley.kube.http import HttpClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[..., Awaitable[HttpClient]]

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7"},
}


def answering(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    content = body if isinstance(body, bytes) else orjson.dumps(body)

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, status=status, headers=headers, content_type="application/json")

    return handler


def status_object(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }
