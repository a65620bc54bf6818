"""A component is started, waited for and ended; when it fails, the error shows the end of its log."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from parley_devcluster import fake_nodes, kubeconfig, processes
from parley_devcluster.certificates import Authority
from parley_devcluster.component import Component, ComponentFailed, listening
from parley_devcluster.control_plane import Command
from parley_devcluster.processes import ProcessIdentity

NOW = datetime(2026, 5, 1, tzinfo=UTC)


class Recorded:
    """Remembers what a component told about its process."""

    def __init__(self) -> None:
        self.processes: list[ProcessIdentity | None] = []

    def __call__(self, name: str, process: ProcessIdentity | None) -> None:
        assert name == "part"
        self.processes.append(process)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    yield Recorded()
    for process in processes.marked(tmp_path):
        processes.kill(process)


def component(tmp_path: Path, recorded: Recorded, script: str, health: str | None = None) -> Component:
    command = Command("part", ("/bin/sh", "-c", script), health)
    return Component(command, tmp_path, tmp_path / "logs" / "part.log", lambda _: False, recorded)


def test_a_component_is_recorded_when_it_starts_and_when_it_ends(tmp_path: Path, recorded: Recorded) -> None:
    part = component(tmp_path, recorded, "exec sleep 60")

    part.start()
    pid = part.pid
    part.stop()

    assert pid is not None
    assert [process.pid if process else None for process in recorded.processes] == [pid, None]
    assert part.pid is None
    assert not part.running


def test_a_component_carries_its_clusters_mark_and_no_proxy_of_the_user(
    tmp_path: Path, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org")
    seen = tmp_path / "seen"
    part = component(tmp_path, recorded, f"env > {seen}.part; mv {seen}.part {seen}; exec sleep 60")

    part.start()

    while not seen.exists():
        assert part.running
        time.sleep(0.01)
    environment = seen.read_text()
    assert f"PARLEY_DEVCLUSTER={tmp_path}\n" in environment
    assert "PROXY" not in environment


def test_one_that_is_started_again_while_it_is_being_killed_stays_recorded(
    tmp_path: Path, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, kill = component(tmp_path, recorded, "exec sleep 60"), processes.kill
    part.start()

    def killed(process: ProcessIdentity) -> None:
        kill(process)
        part.launch()  # another thread sees that it is gone before this one has recorded that

    monkeypatch.setattr(processes, "kill", killed)
    part.kill()

    assert part.running
    last = recorded.processes[-1]
    assert last is not None
    assert last.pid == part.pid


def test_a_component_that_runs_is_not_started_twice(tmp_path: Path, recorded: Recorded) -> None:
    part = component(tmp_path, recorded, "exec sleep 60")
    part.start()
    first = part.pid

    part.start()

    assert part.pid == first


def test_a_killed_component_starts_again_as_another_process(tmp_path: Path, recorded: Recorded) -> None:
    part = component(tmp_path, recorded, "echo started; exec sleep 60", str(tmp_path / "absent.sock"))
    part.launch()
    first = part.pid

    part.kill()
    part.launch()

    assert first is not None
    assert part.pid not in (None, first)


def test_one_that_ends_early_shows_the_end_of_its_log(tmp_path: Path, recorded: Recorded) -> None:
    part = component(tmp_path, recorded, "for i in $(seq 20); do echo line $i >&2; done", str(tmp_path / "s"))

    with pytest.raises(ComponentFailed) as caught:
        part.start()

    lines = "\n".join(f"line {number}" for number in range(6, 21))
    assert str(caught.value) == f"part ended early; the end of {tmp_path}/logs/part.log:\n{lines}"


def test_one_that_never_serves_is_told_with_what_was_waited_for(tmp_path: Path, recorded: Recorded) -> None:
    part = component(tmp_path, recorded, "echo hm; exec sleep 60", "https://127.0.0.1:1/readyz")
    part.launch()

    with pytest.raises(ComponentFailed) as caught:
        part.wait_ready(limit=0.3)

    assert str(caught.value).startswith(
        "part did not become ready within 0 s (https://127.0.0.1:1/readyz); the end of"
    )


def test_a_program_that_does_not_exist_is_named(tmp_path: Path, recorded: Recorded) -> None:
    part = Component(Command("part", ("/absent",)), tmp_path, tmp_path / "log", lambda _: True, recorded)

    with pytest.raises(ComponentFailed) as caught:
        part.start()

    assert str(caught.value) == "part: /absent cannot be started: No such file or directory"


def test_a_socket_file_without_a_listener_does_not_serve(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        before = listening(path)
        server.listen()
        during = listening(path)

    assert (before, during, listening(path)) == (False, True, False)


def test_a_client_certificate_names_user_and_groups_and_is_valid_for_a_year(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "pki", NOW)

    pair = authority.client("ada", "ada@example.org", ["staff", "admins"], NOW)

    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    organisations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "ada@example.org"
    assert [organisation.value for organisation in organisations] == ["staff", "admins"]
    assert (certificate.not_valid_after_utc - NOW).days == 365
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.pair.certificate.read_bytes()))


def test_private_keys_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "pki", NOW)
    pair = authority.serving("server", ["127.0.0.1", "localhost"], NOW)

    for key in (pair.key, authority.pair.key, authority.service_account_key):
        assert key.stat().st_mode & 0o777 == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pair.certificate, pair.key)


def test_a_kubeconfig_can_be_handed_on_as_one_file(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "pki", NOW)
    pair = authority.client("ada", "ada", [], NOW)
    certificate = kubeconfig.with_certificate("https://s", authority.pair.certificate, pair)
    token = kubeconfig.with_token("https://s", authority.pair.certificate, "abc")

    written = json.loads(kubeconfig.write(tmp_path / "k", certificate).read_text())

    key = written["users"][0]["user"]["client-key-data"]
    assert base64.b64decode(key) == pair.key.read_bytes()
    assert token["users"][0]["user"] == {"token": "abc"}
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600


def test_a_fake_node_says_that_it_is_one() -> None:
    node = fake_nodes.node("fake-0", fake_nodes.ALLOCATABLE, {"zone": "a"})

    assert node["metadata"]["labels"] == {
        "parley.dev/fake-node": "true",
        "kubernetes.io/hostname": "fake-0",
        "kubernetes.io/os": "linux",
        "zone": "a",
    }
    assert node["status"]["allocatable"] == dict(fake_nodes.ALLOCATABLE)
