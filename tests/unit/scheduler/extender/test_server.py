"""The way in for schedulers: paths, who answers, and over TLS who gets in, also after a renewal."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog.testing

from parley.control.telemetry import handshakes
from parley.control.telemetry.connections import SCHEDULER, allow_many_files
from parley.kube.lease import LeaseLost
from parley.scheduler.extender.certificates import Certificates
from parley.scheduler.extender.server import serving
from parley.scheduler.extender.wire import BadCall
from parley.sdk.checks import DriverFault
from parley_devcluster.certificates import Authority


class Echo:
    """An extender that says what it was asked."""

    verbs: Sequence[str] = ("filter", "bind")

    async def answer(self, verb: str, body: bytes) -> bytes:
        if not body:
            raise BadCall("not what kube-scheduler sends: nothing")
        if body == b"late":
            raise LeaseLost("lease parley-system/parley-controller: another one holds it")
        return verb.encode() + b" " + body


@asynccontextmanager
async def asking(port: int, context: ssl.SSLContext | None = None) -> AsyncIterator[Any]:
    """A function that posts, over a new connection each time; it gives status and body."""
    scheme = "https" if context is not None else "http"

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:

        async def ask(path: str, body: bytes = b"", method: str = "POST") -> tuple[int, str]:
            url = f"{scheme}://127.0.0.1:{port}/{path}"
            async with session.request(method, url, data=body, ssl=context or True) as answer:
                return answer.status, await answer.text()

        yield ask


async def test_each_verb_is_a_path() -> None:
    async with serving(Echo, "127.0.0.1", 0) as port, asking(port) as ask:
        assert await ask("filter", b"{}") == (200, "filter {}")
        assert await ask("bind", b"[]") == (200, "bind []")


async def test_what_is_no_verb_and_what_is_no_call_are_refused_in_words() -> None:
    async with serving(Echo, "127.0.0.1", 0) as port, asking(port) as ask:
        assert await ask("evict", b"{}") == (404, "there is no verb evict: filter, bind")
        assert await ask("filter") == (400, "not what kube-scheduler sends: nothing")


async def test_of_calls_that_are_not_understood_one_is_logged_at_a_time() -> None:
    with structlog.testing.capture_logs() as lines:
        async with serving(Echo, "127.0.0.1", 0) as port, asking(port) as ask:
            for verb in ("filter", "bind"):
                assert (await ask(verb))[0] == 400
    (line,) = [line for line in lines if line["log_level"] == "warning"]
    assert (line["verb"], line["error"]) == ("filter", "not what kube-scheduler sends: nothing")


async def test_who_loses_its_lease_on_the_way_does_not_answer() -> None:
    async with serving(Echo, "127.0.0.1", 0) as port, asking(port) as ask:
        assert await ask("bind", b"late") == (503, "this process does not lead any more")


async def test_who_does_not_lead_answers_nothing_and_is_not_ready() -> None:
    leading: list[Any] = []
    async with serving(lambda: leading[0] if leading else None, "127.0.0.1", 0) as port, asking(port) as ask:
        assert await ask("filter", b"{}") == (503, "this process does not lead")
        assert (await ask("readyz", method="GET"))[0] == 503
        assert (await ask("healthz", method="GET"))[0] == 200
        leading.append(Echo())
        assert (await ask("readyz", method="GET"))[0] == 200
        assert (await ask("filter", b"{}"))[0] == 200


class Broken(Echo):
    """An extender with a driver that breaks its promises."""

    async def answer(self, verb: str, body: bytes) -> bytes:
        raise DriverFault("driver x gave no answer for claim 'gpu'")


async def test_a_call_that_fails_is_logged_and_answered_with_what_went_wrong() -> None:
    extender = Broken()
    with structlog.testing.capture_logs() as lines:
        async with serving(lambda: extender, "127.0.0.1", 0) as port, asking(port) as ask:
            answered = await ask("filter", b"{}")
    assert answered == (500, "filter failed: driver x gave no answer for claim 'gpu'")
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert (line["verb"], line["error"]) == ("filter", "driver x gave no answer for claim 'gpu'")


async def test_a_call_that_fails_because_the_process_leads_no_more_is_no_error() -> None:
    leading: list[Any] = [Broken(), None]
    with structlog.testing.capture_logs() as lines:
        async with serving(lambda: leading.pop(0), "127.0.0.1", 0) as port, asking(port) as ask:
            assert await ask("bind", b"{}") == (503, "this process does not lead any more")
    assert [line for line in lines if line["log_level"] == "error"] == []


class Slow(Echo):
    """An extender whose answers never come."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def answer(self, verb: str, body: bytes) -> bytes:
        self.asked.set()
        await asyncio.Event().wait()
        return b""


async def test_a_call_that_waits_does_not_hold_up_the_end_of_the_process() -> None:
    extender = Slow()
    async with asyncio.timeout(60):
        async with serving(lambda: extender, "127.0.0.1", 0) as port, asking(port) as ask:
            call = asyncio.create_task(ask("bind", b"{}"))
            await extender.asked.wait()
        with pytest.raises(aiohttp.ClientError):
            await call


def authority(folder: Path) -> Authority:
    """A new one, with certificates for the extender and for a scheduler."""
    now = datetime.now(UTC)
    made = Authority.create(folder, now)
    made.serving("extender", ["127.0.0.1"], now)
    made.client("scheduler", "system:kube-scheduler", [], now)
    return made


def files(made: Authority) -> Certificates:
    return Certificates(made.named("extender").certificate, made.named("extender").key, made.pair.certificate)


def scheduler(made: Authority, *, known: bool = True) -> ssl.SSLContext:
    """How a scheduler connects that trusts this authority; `known` ones have a certificate of it."""
    context = ssl.create_default_context(cafile=str(made.pair.certificate))
    if known:
        context.load_cert_chain(made.named("scheduler").certificate, made.named("scheduler").key)
    return context


async def test_over_tls_only_a_scheduler_with_a_certificate_of_the_authority_gets_in(tmp_path: Path) -> None:
    ours, other = authority(tmp_path / "ours"), authority(tmp_path / "other")
    async with serving(Echo, "127.0.0.1", 0, files(ours).context()) as port:
        async with asking(port, scheduler(ours)) as ask:
            assert await ask("filter", b"{}") == (200, "filter {}")
        stranger = scheduler(ours, known=False)
        stranger.load_cert_chain(other.named("scheduler").certificate, other.named("scheduler").key)
        for context in (scheduler(ours, known=False), stranger):
            async with asking(port, context) as ask:
                with pytest.raises(aiohttp.ClientError):
                    await ask("filter", b"{}")


async def test_renewed_certificates_hold_from_the_next_connection_on(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    before = authority(folder)
    old = scheduler(before)
    async with serving(Echo, "127.0.0.1", 0, files(before).context()) as port:
        async with asking(port, old) as ask:
            assert (await ask("filter", b"{}"))[0] == 200
        new = scheduler(authority(folder))
        async with asking(port, new) as ask:
            assert (await ask("filter", b"{}"))[0] == 200
        async with asking(port, old) as ask:
            with pytest.raises(aiohttp.ClientError):
                await ask("filter", b"{}")


async def test_certificates_that_are_just_being_replaced_leave_the_known_ones_in_force(tmp_path: Path) -> None:
    made = authority(tmp_path / "pki")
    async with serving(Echo, "127.0.0.1", 0, files(made).context()) as port:
        key = made.named("extender").key
        whole = key.read_bytes()
        key.write_bytes(whole[:20])
        async with asking(port, scheduler(made)) as ask:
            assert (await ask("filter", b"{}"))[0] == 200
        key.write_bytes(whole)
        async with asking(port, scheduler(made)) as ask:
            assert (await ask("filter", b"{}"))[0] == 200


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handshakes are not given up for the time that they take."""
    monkeypatch.setattr(handshakes, "SECONDS", 600.0)


async def test_whoever_connects_without_a_word_is_given_up_for_others_before_it_has_cost_much(
    patient: None,
    tmp_path: Path,
) -> None:
    """It needs no certificate for that. The scheduler gets in meanwhile."""
    allow_many_files()
    made, count = authority(tmp_path / "pki"), SCHEDULER.handshakes + 100
    async with serving(Echo, "127.0.0.1", 0, files(made).context()) as port:
        silent = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(count)))
        async with asyncio.timeout(60):
            while over(silent) < 100:  # noqa: ASYNC110 - none of them is a particular one
                await asyncio.sleep(0.01)
        async with asking(port, scheduler(made)) as ask:
            assert (await ask("filter", b"{}"))[0] == 200
        assert over(silent) == 101
        for _, writer in silent:
            writer.transport.abort()


def over(connections: Sequence[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> int:
    """How many the other side has closed."""
    return sum(reader.at_eof() or reader.exception() is not None for reader, _ in connections)


async def ended(reader: asyncio.StreamReader) -> None:
    try:
        assert await reader.read() == b""
    except ConnectionError:
        pass


async def test_handshakes_that_are_under_way_do_not_hold_up_the_end_of_the_process(
    patient: None, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        async with serving(Echo, "127.0.0.1", 0, files(authority(tmp_path / "pki")).context()) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.1)
        await ended(reader)
        writer.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "over TLS"])
async def test_a_burst_of_bindings_loses_no_connection(patient: None, tmp_path: Path, tls: bool) -> None:
    """kube-scheduler opened up to 660 connections at a time; an error on one of them costs a pod its backoff."""
    allow_many_files()
    made = authority(tmp_path / "pki")
    context, scheme = (files(made).context(), "https") if tls else (None, "http")
    async with serving(Echo, "127.0.0.1", 0, context) as port:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ssl=scheduler(made) if tls else True)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def bind(number: int) -> str:
                async with session.post(f"{scheme}://127.0.0.1:{port}/bind", data=str(number)) as answer:
                    return await answer.text()

            expected = [f"bind {number}" for number in range(700)]
            first = await asyncio.gather(*(bind(number) for number in range(700)))
            again = await asyncio.gather(*(bind(number) for number in range(700)))

    assert list(first) == list(again) == expected
