"""Which proxy of the environment a client uses."""

import os
from typing import Any

import pytest

from parley.kube.credentials import Credentials


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
