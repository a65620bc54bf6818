"""Certificates of servers and clients: which are trusted, and that they may be renewed."""

import base64
from pathlib import Path

import pytest
import trustme
from tests.unit.kube.http.kubeconfigs import write_kubeconfig
from tests.unit.kube.http.tls import TlsServer, write_certificate

from parley.api.resources import NODES
from parley.kube import credentials
from parley.kube.client import OutcomeUnknown
from parley.kube.http import HttpClient


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
