"""Which address and token a client uses."""

import asyncio
import base64
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from kubernetes.aio.config import load_kube_config
from tests.unit.kube.http.answers import Handler
from tests.unit.kube.http.kubeconfigs import write_kubeconfig

from parley.api.resources import NODES
from parley.kube import credentials
from parley.kube.client_config import ClientConfig, read_kubeconfig, read_service_account
from parley.kube.credentials import NoConfiguration
from parley.kube.http import HttpClient, HttpOptions


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
