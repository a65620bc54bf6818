"""When a client reads its credentials again, and what it uses meanwhile."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kube.http.kubeconfigs import write_kubeconfig

from parley.kube import credentials
from parley.kube.credentials import PATIENCE_SECONDS, Credentials


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
