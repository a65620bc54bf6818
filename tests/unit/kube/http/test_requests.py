"""What the HTTP client sends, and what it makes of every kind of answer."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.unit.kube.http.answers import POD, Handler, Serve, answering, status_object

from parley.api.resources import BUILTIN_CLAIMS, CLASSES, NODES, PODS
from parley.kube.client import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from parley.kube.credentials import Credentials
from parley.kube.errors import Garbled
from parley.kube.http import HttpClient

REFUSALS = [
    (400, "BadRequest", BadRequest),
    (401, "Unauthorized", Unauthorized),
    (403, "Forbidden", Forbidden),
    (404, "NotFound", NotFound),
    (405, "MethodNotAllowed", ApiError),
    (409, "AlreadyExists", AlreadyExists),
    (409, "Conflict", Conflict),
    (410, "Expired", Expired),
    (422, "Invalid", Invalid),
    (429, "TooManyRequests", TooManyRequests),
    (500, "InternalError", ServerError),
    (503, "ServiceUnavailable", ServerError),
]


@pytest.mark.parametrize(("code", "reason", "error"), REFUSALS)
async def test_a_refusal_is_raised_by_its_code_in_the_servers_words(
    code: int, reason: str, error: type[ApiError], serve: Serve
) -> None:
    client = await serve(answering(status_object(code, reason, f"sorry: {reason}"), code))
    with pytest.raises(error) as caught:
        await client.patch(PODS, "a", {}, "default")

    assert type(caught.value) is error
    assert str(caught.value) == f"{code} {reason}: sorry: {reason}"
    assert caught.value.retry_after is None


@pytest.mark.parametrize(
    ("details", "headers", "seconds"),
    [
        ({"retryAfterSeconds": 3}, {}, 3),
        ({}, {"Retry-After": "7"}, 7),
        ({"retryAfterSeconds": 3}, {"Retry-After": "7"}, 3),
        ({}, {"Retry-After": "Sat, 21 Nov 2026 14:00:00 GMT"}, None),
    ],
)
async def test_a_server_that_asks_to_slow_down_says_for_how_long(
    details: dict[str, Any], headers: dict[str, str], seconds: float | None, serve: Serve
) -> None:
    body = status_object(429, "TooManyRequests", "too many requests", **details)
    client = await serve(answering(body, 429, headers))
    with pytest.raises(TooManyRequests) as caught:
        await client.list(PODS)
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    "answer",
    [
        b"\n<!DOCTYPE html><h1>404 Not Found</h1>",
        b"default backend - 404",
        b'{"message": "no Route matched with those values"}',
        b"",
    ],
)
async def test_a_404_of_another_server_does_not_say_that_the_object_is_absent(answer: bytes, serve: Serve) -> None:
    """It may be a gateway's, or a web server's at the kubeconfig's address. No deletion counts as done by it."""
    client = await serve(answering(answer, 404))
    with pytest.raises(Garbled, match=r"^DELETE pods default/a: the answer 404 does not come from an API server$"):
        await client.delete(PODS, "a", "default")


@pytest.mark.parametrize("answer", [{}, {"message": "under maintenance"}, {"metadata": {}}])
@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.list(PODS),
        lambda client: client.get(PODS, "a", "default"),
        lambda client: client.get(PODS.untyped(), "a", "default"),
        lambda client: client.patch(PODS, "a", {}, "default", subresource="status"),
        lambda client: client.create(PODS, {"metadata": {"generateName": "a-"}}, "default"),
        lambda client: client.delete(PODS, "a", "default"),
    ],
)
async def test_json_of_another_server_is_no_answer(
    ask: Callable[[HttpClient], Awaitable[object]], answer: object, serve: Serve
) -> None:
    """Read as an empty list, it would say that all pods are gone; read as an object, that another one is there."""
    client = await serve(answering(answer))
    with pytest.raises(Garbled):
        await ask(client)


async def test_a_kind_that_the_api_server_does_not_serve_is_absent(serve: Serve) -> None:
    client = await serve(answering(b"404 page not found\n", 404))
    with pytest.raises(NotFound):
        await client.list(CLASSES)


async def test_an_answer_that_is_no_status_object_is_quoted(serve: Serve) -> None:
    page = b"<html>upstream connect error</html>"
    client = await serve(answering(page, 503))
    with pytest.raises(ServerError, match=r"^503 Service Unavailable: <html>upstream connect error</html>$"):
        await client.get(NODES, "n1")


async def test_a_redirect_is_not_followed(serve: Serve) -> None:
    client = await serve(answering(b"", 307, {"Location": "https://elsewhere.example"}))
    with pytest.raises(ApiError, match=r"^307 Temporary Redirect: the answer has no text$"):
        await client.get(NODES, "n1")


class Recorder:
    """Answers with a pod and remembers what was asked."""

    def __init__(self) -> None:
        self.request = ""
        self.headers: dict[str, str] = {}
        self.body: Any = None

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.request = f"{request.method} {request.raw_path}"
        self.headers = dict(request.headers)
        content = await request.read()
        self.body = orjson.loads(content) if content else None
        return web.Response(body=orjson.dumps(POD))


async def test_reads_go_to_the_kinds_path(serve: Serve) -> None:
    recorder = Recorder()
    client = await serve(recorder)
    pod = await client.get(PODS, "a", "default")
    assert recorder.request == "GET /api/v1/namespaces/default/pods/a"
    assert (pod.metadata.name, pod.metadata.resource_version) == ("a", "7")
    assert recorder.headers["Authorization"] == "Bearer token-1"
    assert recorder.headers["User-Agent"] == "parley"

    await client.list(BUILTIN_CLAIMS, label_selector="a in (b,c)", field_selector="metadata.name=x")
    assert recorder.request == (
        "GET /apis/resource.k8s.io/v1/resourceclaims"
        "?labelSelector=a+in+%28b%2Cc%29&fieldSelector=metadata.name%3Dx&limit=500"
    )


async def test_a_name_cannot_leave_its_place_in_the_path(serve: Serve) -> None:
    recorder = Recorder()
    client = await serve(recorder)
    await client.get(PODS, "../../secrets?x=1#", "default")
    assert recorder.request == "GET /api/v1/namespaces/default/pods/..%2F..%2Fsecrets%3Fx=1%23"


async def test_a_creation_names_its_kind(serve: Serve) -> None:
    recorder = Recorder()
    client = await serve(recorder)
    await client.create(PODS, {"metadata": {"generateName": "a-"}}, "default", field_manager="parley")
    assert recorder.request == "POST /api/v1/namespaces/default/pods?fieldManager=parley"
    assert recorder.body == {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}}


async def test_a_patch_has_its_media_type(serve: Serve) -> None:
    recorder = Recorder()
    client = await serve(recorder)
    await client.patch(PODS, "a", {"status": {}}, "default", subresource="status")
    assert recorder.request == "PATCH /api/v1/namespaces/default/pods/a/status"
    assert recorder.headers["Content-Type"] == "application/merge-patch+json"


async def test_an_apply_names_manager_force_and_kind(serve: Serve) -> None:
    recorder = Recorder()
    client = await serve(recorder)
    await client.apply(PODS, "a", {"spec": {}}, "default", field_manager="parley", force=True)
    assert recorder.request == "PATCH /api/v1/namespaces/default/pods/a?fieldManager=parley&force=true"
    assert recorder.headers["Content-Type"] == "application/apply-patch+yaml"
    assert recorder.body == {"apiVersion": "v1", "kind": "Pod", "spec": {}}


async def test_a_deletion_has_its_preconditions(serve: Serve) -> None:
    recorder = Recorder()
    client = await serve(recorder)
    await client.delete(PODS, "a", "default", uid="u", resource_version="7", grace_period_seconds=0)
    assert recorder.body == {
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
    }
    await client.delete(PODS, "a", "default")
    assert recorder.body == {"propagationPolicy": "Background"}


async def test_a_subresource_answers_with_plain_json(serve: Serve) -> None:
    recorder = Recorder()
    client = await serve(recorder)
    answer = await client.create_subresource(PODS, "a", "binding", {"target": {"name": "n1"}}, "default")
    assert recorder.request == "POST /api/v1/namespaces/default/pods/a/binding"
    assert answer == POD


async def test_a_list_is_typed_and_has_its_version(serve: Serve) -> None:
    body = {"metadata": {"resourceVersion": "12"}, "items": [POD, POD]}
    client = await serve(answering(body))
    listing = await client.list(PODS)
    assert [pod.metadata.name for pod in listing.items] == ["a", "a"]
    assert listing.resource_version == "12"


async def test_a_long_list_comes_in_pages_of_one_version(serve: Serve) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        rest = request.query.get("continue", "")
        asked.append(rest)
        metadata = {"resourceVersion": "12", "continue": {"": "a/b", "a/b": "c=", "c=": ""}[rest]}
        return web.json_response({"metadata": metadata, "items": [POD]})

    client = await serve(answer)
    listing = await client.list(PODS, label_selector="app=a")
    assert asked == ["", "a/b", "c="]
    assert (len(listing.items), listing.resource_version) == (3, "12")


async def test_a_list_whose_rest_is_not_kept_any_more_is_to_be_listed_anew(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        if "continue" in request.query:
            return web.json_response({"code": 410, "reason": "Expired", "message": "too old"}, status=410)
        return web.json_response({"metadata": {"resourceVersion": "12", "continue": "a"}, "items": [POD]})

    client = await serve(answer)
    with pytest.raises(Expired):
        await client.list(PODS)


async def test_an_object_that_does_not_fit_its_type_is_no_answer(serve: Serve) -> None:
    nameless = {"metadata": {"name": "gpu"}, "driverName": 3}
    client = await serve(answering({"metadata": {"resourceVersion": "1"}, "items": [nameless]}))
    with pytest.raises(OutcomeUnknown, match="GET resourceclasses: the answer cannot be read as ResourceClass"):
        await client.list(CLASSES)
    client = await serve(answering(nameless))
    with pytest.raises(OutcomeUnknown, match="GET resourceclasses gpu: the answer cannot be read as"):
        await client.get(CLASSES, "gpu")


async def test_after_a_401_the_credentials_are_read_again(host_of: Callable[[Handler], Awaitable[str]]) -> None:
    tokens = iter(["old", "new"])

    async def load(configuration: Any) -> None:
        configuration.host = host
        configuration.api_key["BearerToken"] = f"Bearer {next(tokens)}"

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] == "Bearer new":
            return web.Response(body=orjson.dumps(POD))
        return web.Response(body=orjson.dumps(status_object(401, "Unauthorized", "Unauthorized")), status=401)

    host = await host_of(handler)
    async with HttpClient(Credentials(load, "test")) as client:
        with pytest.raises(Unauthorized):
            await client.get(PODS, "a", "default")
        assert (await client.get(PODS, "a", "default")).metadata.name == "a"


async def test_closing_twice_is_fine(serve: Serve) -> None:
    client = await serve(answering(POD))
    await client.get(PODS, "a", "default")
    await client.close()
    await client.close()


async def test_what_go_escapes_is_sent_escaped(serve: Serve) -> None:
    sent: list[bytes] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        sent.append(await request.read())
        return web.json_response(POD)

    client = await serve(handler)
    words = "<a> & \u2028\u2029 \u2027 \\u003c"
    await client.create(PODS, {"metadata": {"name": "a", "annotations": {"words": words}}}, "default")

    assert b"\\u003ca\\u003e \\u0026 \\u2028\\u2029 \xe2\x80\xa7 \\\\u003c" in sent[0]
    assert orjson.loads(sent[0])["metadata"]["annotations"]["words"] == words


async def test_a_request_may_be_made_as_somebody_else(serve: Serve) -> None:
    seen: list[tuple[str, list[str]]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers["Impersonate-User"], request.headers.getall("Impersonate-Group")))
        return web.json_response({"metadata": {"name": "n1"}})

    client = await serve(handler, impersonate="ann", impersonate_groups=("dev", "ops"))
    await client.get(NODES, "n1")

    assert seen == [("ann", ["dev", "ops"])]
