"""Which address, token and certificates a client uses, and when it looks at them again."""

import asyncio
import base64
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
import trustme
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.config import load_kube_config

from parley.api.resources import NODES
from parley.kube import credentials
from parley.kube.client import OutcomeUnknown
from parley.kube.client_config import ClientConfig, read_kubeconfig, read_service_account
from parley.kube.credentials import PATIENCE_SECONDS, Credentials, NoConfiguration
from parley.kube.http import HttpClient, HttpOptions

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def write_kubeconfig(path: Path, user: dict[str, Any], server: str = "http://127.0.0.1:1", **cluster: Any) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def test_a_token_is_sent_as_the_kubeconfig_has_it(tmp_path: Path) -> None:
    known = credentials.kubeconfig(write_kubeconfig(tmp_path / "config", {"token": "abc"}))
    await known.refresh()
    assert (known.host, known.authorization) == ("http://127.0.0.1:1", "Bearer abc")


async def test_the_kubeconfig_of_the_environment_is_used_when_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "config", {"token": "abc"}))
    known = credentials.kubeconfig()
    await known.refresh()
    assert known.authorization == "Bearer abc"


async def test_a_kubeconfig_that_impersonates_is_obeyed_unless_the_command_names_somebody(
    tmp_path: Path, host_of: Callable[[Handler], Awaitable[str]]
) -> None:
    asked: list[tuple[str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.extend(pair for pair in request.headers.items() if pair[0].startswith("Impersonate-"))
        return web.json_response({"metadata": {"name": "any"}})

    groups, extra = ["a", "b"], {"example.com/scope": ["read"]}
    user = {"token": "abc", "as": "jane", "as-uid": "7", "as-groups": groups, "as-user-extra": extra}
    path = write_kubeconfig(tmp_path / "config", user, await host_of(handler))
    for options in (HttpOptions(), HttpOptions(impersonate="joe")):
        async with HttpClient.from_kubeconfig(path, options=options) as client:
            await client.get(NODES, "any")
    assert asked == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.com%2Fscope", "read"),
        ("Impersonate-User", "joe"),
    ]


async def test_a_missing_kubeconfig_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(NoConfiguration) as caught:
        await credentials.kubeconfig(str(tmp_path / "absent")).refresh()
    assert str(caught.value) == (
        f"kubeconfig {tmp_path}/absent, current context: no such file; "
        "name another one with --kubeconfig or KUBECONFIG"
    )


async def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", {"token": "abc"})
    with pytest.raises(NoConfiguration) as caught:
        async with HttpClient.from_kubeconfig(path, "staging"):
            pass
    assert str(caught.value).startswith(f"kubeconfig {path}, context 'staging': ")
    assert "there is no context 'staging': choose one with --context (it has " in str(caught.value)


async def test_outside_of_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NoConfiguration) as caught:
        await credentials.in_cluster().refresh()
    assert str(caught.value) == (
        "the pod's service account (outside of a pod, name a kubeconfig with --kubeconfig): "
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
    )


@pytest.mark.parametrize(
    ("host", "address"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
async def test_in_a_pod_the_service_account_is_used(
    host: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("abc\n")
    config = ClientConfig()
    read_service_account(config, tmp_path)
    assert (config.host, config.api_key) == (address, {"BearerToken": "Bearer abc"})
    assert (config.ssl_ca_cert, config.verify_ssl) == (str(tmp_path / "ca.crt"), True)


@pytest.mark.parametrize(
    ("user", "simple"),
    [
        ({"token": "abc"}, True),
        ({"tokenFile": "token"}, False),
        ({"token": "abc", "as": "somebody"}, False),
        ({"client-certificate": "client.crt", "client-key": "client.key"}, False),
        ({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}}, False),
        ({}, False),
    ],
)
def test_a_kubeconfig_with_a_token_and_nothing_else_is_simple(
    user: dict[str, Any], simple: bool, tmp_path: Path
) -> None:
    assert read_kubeconfig(write_kubeconfig(tmp_path / "config", user), None, ClientConfig()) is simple


async def test_a_simple_kubeconfig_says_the_same_when_the_kubernetes_package_reads_it(
    tmp_path: Path, authority: trustme.CA
) -> None:
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "api", "proxy-url": "http://proxy:3128"}
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    path = write_kubeconfig(tmp_path / "config", {"token": "abc"}, "https://127.0.0.1:1/", **cluster)
    simple, other = ClientConfig(), ClientConfig()
    assert read_kubeconfig(path, "main", simple)
    await load_kube_config(path, "main", other, persist_config=False)  # type: ignore[no-untyped-call]
    assert simple == other


async def test_neither_a_service_account_nor_a_token_needs_the_kubernetes_package(
    tmp_path: Path, authority: trustme.CA
) -> None:
    data = base64.b64encode(authority.cert_pem.bytes()).decode()
    cluster = {"certificate-authority-data": data}
    path = write_kubeconfig(tmp_path / "config", {"token": "abc"}, "https://127.0.0.1:1", **cluster)
    program = (
        "import asyncio, sys; from parley.kube import credentials;"
        f"asyncio.run(credentials.kubeconfig({path!r}).refresh());"
        "sys.exit('kubernetes' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0


async def test_the_authority_of_a_simple_kubeconfig_is_trusted_and_may_be_renewed(
    tmp_path: Path, authority: trustme.CA, plain_tls_host: str
) -> None:
    def write(trusted: trustme.CA) -> str:
        data = base64.b64encode(trusted.cert_pem.bytes()).decode()
        cluster = {"certificate-authority-data": data}
        return write_kubeconfig(tmp_path / "config", {"token": "abc"}, plain_tls_host, **cluster)

    known = credentials.kubeconfig(write(trustme.CA()))
    async with HttpClient(known) as client:
        with pytest.raises(OutcomeUnknown, match="its certificate is not trusted"):
            await client.get(NODES, "any")
        write(authority)
        known.invalidate()
        assert (await client.get(NODES, "any")).metadata.name == "anybody"


@pytest.mark.looptime
async def test_a_token_file_is_read_again_after_a_while(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    known = credentials.kubeconfig(write_kubeconfig(tmp_path / "config", {"tokenFile": str(token)}))
    await known.refresh()
    token.write_text("second\n")

    assert known.current()
    await known.refresh()
    assert known.authorization == "Bearer first"

    await asyncio.sleep(credentials.REFRESH_SECONDS)
    assert not known.current()
    await known.refresh()
    assert known.authorization == "Bearer second"


@pytest.mark.looptime
async def test_what_can_no_longer_be_read_stays_as_it_was() -> None:
    readings = iter(["Bearer first"])

    async def load(configuration: Any) -> None:
        configuration.host = "http://127.0.0.1:1"
        configuration.api_key["BearerToken"] = next(readings, None) or missing()

    def missing() -> str:
        raise FileNotFoundError("token")

    known = Credentials(load, "test")
    await known.refresh()
    known.invalidate()
    await known.refresh()
    assert known.authorization == "Bearer first"
    assert known.current()


@pytest.mark.looptime
async def test_credentials_that_take_longer_than_a_request_may_are_there_for_a_later_one() -> None:
    # As of a credential plugin. A candidate for a lease has 4 s for a request, and makes no others.
    begun = 0

    async def load(configuration: Any) -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(6)
        configuration.api_key["BearerToken"] = f"Bearer {begun}"

    known = Credentials(load, "test")
    for _ in range(2):
        with suppress(TimeoutError):
            await asyncio.wait_for(known.refresh(), 4)
    assert (begun, known.authorization) == (1, "Bearer 1")


@pytest.mark.looptime
async def test_known_credentials_are_used_while_new_ones_do_not_come() -> None:
    # A plugin is asked minutes before its token ends. A lease is lost after 10 s without a request.
    begun = 0

    async def load(configuration: Any) -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(1e9 if begun == 2 else 0)
        configuration.api_key["BearerToken"] = f"Bearer {begun}"

    known, now = Credentials(load, "test"), asyncio.get_running_loop().time
    await known.refresh()
    await asyncio.sleep(60)
    before = now()
    await known.refresh()
    assert now() == before + PATIENCE_SECONDS
    await known.refresh()
    assert (now(), known.authorization) == (before + PATIENCE_SECONDS, "Bearer 1")

    known.invalidate()  # the server refused them: only new ones are of use
    await known.refresh()
    assert (now(), known.authorization) == (before + 60, "Bearer 1")
    await asyncio.sleep(60)
    await known.refresh()
    assert (begun, known.authorization) == (3, "Bearer 3")


async def test_many_who_wait_for_credentials_read_them_once() -> None:
    readings = 0

    async def load(configuration: Any) -> None:
        nonlocal readings
        readings += 1
        await asyncio.sleep(0)

    known = Credentials(load, "test")
    await asyncio.gather(*(known.refresh() for _ in range(5)))
    assert readings == 1


@pytest.mark.parametrize(
    ("host", "excepted", "proxy"),
    [
        ("https://10.0.0.1:6443", "", "http://proxy:3128"),
        ("https://10.0.0.1:6443", "10.0.0.1", None),
        ("https://10.0.0.1:6443", "*", None),
        ("https://10.96.0.1:443", "localhost, 10.96.0.0/12,.svc", None),
        ("https://10.112.0.1:443", "10.96.0.0/12", "http://proxy:3128"),
        ("https://10.96.0.1:443", "fd00::/8,10.96.0.1/wrong", "http://proxy:3128"),
        ("https://[fd00::1]:443", "fd00::/8", None),
        ("https://[fd00::1]:443", "[FD00::1]:443", None),
        ("https://[fd00::1]:443", "fd00::1", None),
        ("https://10.0.0.1:6443", "10.0.0.1:6443", None),
        ("https://10.0.0.1:6443", "10.0.0.1:443", "http://proxy:3128"),
        ("https://10.0.0.1", "10.0.0.1:443", None),
        ("https://api.example.com:6443", "Example.com", None),
        ("https://api.example.com:6443", "api.example.com:6443", None),
        ("https://api.example.com:6443", "*.example.com", None),
        ("https://example.com:6443", ".example.com", "http://proxy:3128"),
        ("https://api.example.com:6443", "ple.com,,:6443", "http://proxy:3128"),
        ("https://10.0.0.1.example.com", "10.0.0.1", "http://proxy:3128"),
        ("https://127.0.0.1:6443", "", None),
        ("https://[::1]:6443", "", None),
        ("https://localhost:6443", "", None),
        ("http://10.0.0.1", "", None),
    ],
)
async def test_a_proxy_of_the_environment_is_used_where_it_applies(
    host: str, excepted: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    assert await proxy_for(host) == proxy


async def proxy_for(host: str) -> str | None:
    async def load(configuration: Any) -> None:
        configuration.host = host

    known = Credentials(load, "test")
    await known.refresh()
    return known.proxy


async def test_a_proxy_without_a_scheme_is_one_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example.com:3128")
    monkeypatch.setenv("NO_PROXY", "")
    assert await proxy_for("https://10.0.0.1:6443") == "http://proxy.example.com:3128"


PLUGIN = """#!/bin/sh
echo run >> "$0.runs"
printf '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {
    "token": "token-%s", "expirationTimestamp": "2099-01-01T00:00:00Z"}}' $(wc -l < "$0.runs")
"""
"""A credential plugin; the number of its run is in the token."""


async def test_a_plugin_is_asked_again_for_a_token_that_the_server_refuses(tmp_path: Path) -> None:
    program = tmp_path / "login"
    program.write_text(PLUGIN)
    program.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}
    known = credentials.kubeconfig(write_kubeconfig(tmp_path / "config", user))
    await known.refresh()
    assert known.authorization == "Bearer token-1"

    known.invalidate()
    await known.refresh()
    assert known.authorization == "Bearer token-2"


class TlsServer:
    """Demands a client certificate and answers with its common name, "anybody" if it may be left out.

    The connection is closed after each answer unless it is to be kept.
    """

    def __init__(
        self, authority: trustme.CA, demanded: ssl.VerifyMode = ssl.CERT_REQUIRED, *, keep: bool = False
    ) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        context.verify_mode = demanded
        authority.configure_trust(context)
        self._context = context
        self._keep = keep
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(application, scheme="https")

    async def start(self) -> str:
        await self._server.start_server(ssl=self._context)
        return str(self._server.make_url("")).rstrip("/")

    async def stop(self) -> None:
        await self._server.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        subject = (request.transport.get_extra_info("peercert") or {}).get("subject", ())
        name = dict(pair for entry in subject for pair in entry).get("commonName", "anybody")
        answer = web.Response(body=orjson.dumps({"metadata": {"name": name}}))
        if not self._keep:
            answer.force_close()
        return answer


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_host(authority: trustme.CA) -> AsyncIterator[str]:
    server = TlsServer(authority)
    yield await server.start()
    await server.stop()


@pytest.fixture
async def plain_tls_host(authority: trustme.CA) -> AsyncIterator[str]:
    server = TlsServer(authority, ssl.CERT_NONE)
    yield await server.start()
    await server.stop()


def write_certificate(folder: Path, authority: trustme.CA, name: str) -> None:
    pair = authority.issue_cert(f"{name}@parley.dev", common_name=name)
    pair.cert_chain_pems[0].write_to_path(folder / "client.crt")
    pair.private_key_pem.write_to_path(folder / "client.key")


async def test_a_client_certificate_proves_who_we_are_and_may_be_renewed(
    tmp_path: Path, authority: trustme.CA, tls_host: str
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    write_certificate(tmp_path, authority, "first")
    path = write_kubeconfig(
        tmp_path / "config",
        {"client-certificate": "client.crt", "client-key": "client.key"},
        tls_host,
        **{"certificate-authority": "ca.crt"},
    )
    known = credentials.kubeconfig(path)
    async with HttpClient(known) as client:
        assert (await client.get(NODES, "any")).metadata.name == "first"

        write_certificate(tmp_path, authority, "second")
        known.invalidate()
        assert (await client.get(NODES, "any")).metadata.name == "second"


async def test_open_connections_do_not_go_on_with_a_certificate_that_was_renewed(
    tmp_path: Path, authority: trustme.CA
) -> None:
    server = TlsServer(authority, keep=True)
    write_certificate(tmp_path, authority, "first")
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    host = await server.start()
    path = write_kubeconfig(tmp_path / "config", user, host, **{"insecure-skip-tls-verify": True})
    known = credentials.kubeconfig(path)
    async with HttpClient(known) as client:
        assert (await client.get(NODES, "any")).metadata.name == "first"
        write_certificate(tmp_path, authority, "second")
        known.invalidate()
        assert (await client.get(NODES, "any")).metadata.name == "second"
    await server.stop()


async def test_a_certificate_that_is_renewed_before_its_key_is_used_when_both_are_there(
    tmp_path: Path, authority: trustme.CA, tls_host: str
) -> None:
    write_certificate(tmp_path, authority, "first")
    (renewed := tmp_path / "renewed").mkdir()
    write_certificate(renewed, authority, "second")
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    path = write_kubeconfig(tmp_path / "config", user, tls_host, **{"insecure-skip-tls-verify": True})
    known = credentials.kubeconfig(path)
    async with HttpClient(known) as client:
        for file, name in (("client.crt", "first"), ("client.key", "second")):
            (renewed / file).rename(tmp_path / file)
            known.invalidate()
            assert (await client.get(NODES, "any")).metadata.name == name


async def test_a_server_of_another_authority_is_refused(
    tmp_path: Path, authority: trustme.CA, tls_host: str
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    path = write_kubeconfig(tmp_path / "config", {"token": "a"}, tls_host, **{"certificate-authority": "ca.crt"})
    async with HttpClient.from_kubeconfig(path) as client:
        with pytest.raises(OutcomeUnknown, match="its certificate is not trusted"):
            await client.get(NODES, "any")


async def test_verification_can_be_switched_off(tmp_path: Path, authority: trustme.CA, tls_host: str) -> None:
    write_certificate(tmp_path, authority, "trusting")
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    path = write_kubeconfig(tmp_path / "config", user, tls_host, **{"insecure-skip-tls-verify": True})
    async with HttpClient.from_kubeconfig(path) as client:
        assert (await client.get(NODES, "any")).metadata.name == "trusting"
