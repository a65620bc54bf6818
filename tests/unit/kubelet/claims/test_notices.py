"""What a driver has to say about claims becomes events on the claim and its pods, not too many of them."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.unit.kubelet.drivers import PortNode, Ports

from parley.api.names import API_VERSION
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, EVENTS
from parley.kube.client import Client, Forbidden
from parley_kubelet.claims import notices
from parley_kubelet.claims.notices import MOST_PODS, Notices
from parley_kubelet.claims.preparation import ClaimName
from parley_kubelet.hooks import HeldClaim, Notice


class Talker(Ports):
    """Says of each held claim what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.says: dict[str, str] = {}
        self.trouble: BaseException | None = None

    async def notices(self, held: Sequence[HeldClaim[Any]]) -> Sequence[Notice[Any]]:
        if self.trouble is not None:
            raise self.trouble
        return [Notice(one.claim, reason, text) for one in held for reason, text in self.says.items()]


class Stage:
    def __init__(self, node: PortNode) -> None:
        self.driver, self.now, self.node = Talker(), 0.0, node
        self.plugin = node.plugin(self.driver)
        self.notices = Notices(self.plugin, node.client, now=lambda: self.now)

    async def look(self, after: float = 0) -> list[tuple[str, str, str]]:
        """What was told of which object since the last look."""
        before = {event.metadata.uid for event in (await self.node.client.list(EVENTS, "team")).items}
        self.now += after
        await self.notices.poll()
        raw = await self.node.client.list(EVENTS.untyped(), "team")
        new = [one for one in raw.items if one["metadata"]["uid"] not in before]
        return [(one["regarding"]["kind"], one["reason"], one["note"]) for one in new]


@pytest.fixture
async def stage(client: Client, folder: Path) -> Stage:
    stage = Stage(PortNode(client, folder))
    await stage.plugin.prepare(await stage.node.claim("a", 7))
    return stage


async def test_the_claim_and_its_pods_are_told_once_and_then_once_an_hour(stage: Stage) -> None:
    stage.driver.says["OverSize"] = "it uses more"
    told = [(kind, "OverSize", "claim team/a: it uses more") for kind in ("ResourceClaim", "Pod")]
    assert await stage.look() == told
    stage.driver.says["OverSize"] = "it uses still more"
    assert await stage.look(notices.REPEAT - 1) == []
    assert len(await stage.look(1)) == 2
    assert stage.notices.counts() == {"OverSize": 1}


async def test_what_comes_and_goes_is_not_told_each_time(stage: Stage) -> None:
    stage.driver.says["OverSize"] = "it uses more"
    await stage.look()
    for _ in range(20):
        stage.driver.says.clear()
        assert await stage.look(1) == []
        assert stage.notices.counts() == {}
        stage.driver.says["OverSize"] = "it uses more"
        assert await stage.look(1) == []
    stage.driver.says.clear()
    await stage.look(notices.REPEAT_RECURRING)
    stage.driver.says["OverSize"] = "it uses more"
    assert len(await stage.look(1)) == 2


async def test_the_claim_is_the_one_that_its_user_knows(stage: Stage) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"resourceClassName": "c"}}
    uid = (await stage.node.client.create(CLAIMS, body, "team")).metadata.uid
    owner = {"apiVersion": API_VERSION, "kind": "ResourceClaim", "name": "a", "uid": uid, "controller": True}
    await stage.node.client.patch(BUILTIN_CLAIMS, "a", {"metadata": {"ownerReferences": [owner]}}, "team")
    stage.driver.says["OverSize"] = "it uses more"
    await stage.look()
    (event,) = [
        one
        for one in (await stage.node.client.list(EVENTS.untyped(), "team")).items
        if one["regarding"]["kind"] == "ResourceClaim"
    ]
    assert event["regarding"] == {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "namespace": "team",
        "name": "a",
        "uid": uid,
    }


async def test_of_many_pods_some_are_told(stage: Stage) -> None:
    users = [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in range(MOST_PODS + 5)]
    reserved = {"status": {"reservedFor": users}}
    await stage.node.client.patch(BUILTIN_CLAIMS, "a", reserved, "team", subresource="status")
    stage.driver.says["OverSize"] = "it uses more"
    assert len(await stage.look()) == 1 + MOST_PODS


async def test_a_claim_that_was_made_anew_meanwhile_is_told_nothing(stage: Stage) -> None:
    await stage.node.client.delete(BUILTIN_CLAIMS, "a", "team")
    stage.driver.says["OverSize"] = "it uses more"
    assert await stage.look() == []
    await stage.node.claim("a", 8)
    assert await stage.look(notices.REPEAT) == []
    assert stage.notices.counts() == {"OverSize": 1}


@pytest.mark.parametrize("trouble", [RuntimeError("broken"), asyncio.CancelledError()], ids=["raises", "cancels"])
async def test_neither_a_driver_that_fails_nor_a_right_that_is_missing_ends_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, trouble: BaseException
) -> None:
    stage.driver.says["OverSize"] = "it uses more"
    stage.driver.trouble = trouble
    with structlog.testing.capture_logs() as logs:
        assert await stage.look() == []
        stage.driver.trouble = None

        async def refuse(*_: Any, **__: Any) -> None:
            raise Forbidden(403, "Forbidden", "events.events.k8s.io is forbidden")

        with monkeypatch.context() as patch:
            patch.setattr(stage.node.client, "create", refuse)
            assert await stage.look() == []
    assert [log["event"] for log in logs] == ["no notices", "notice", "event not written"]
    assert stage.notices.counts() == {"OverSize": 1}
    assert len(await stage.look(notices.REPEAT)) == 2


@pytest.mark.parametrize("told", [None, [None], ["too large"]])
async def test_nor_does_one_that_says_what_is_no_notice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    async def notices(_: Any) -> Any:
        return told

    monkeypatch.setattr(stage.driver, "notices", notices)
    with structlog.testing.capture_logs() as logs:
        assert await stage.look() == []
    assert [log["event"] for log in logs] == ["no notices"]


async def test_nor_does_the_name_of_a_users_file_that_is_no_text(stage: Stage) -> None:
    stage.driver.says["FileTooLarge"] = f"remove {os.fsdecode(b'core.' + bytes([255]))}"
    stage.driver.says["OverSize"] = "it uses more"
    assert {(reason, note) for _, reason, note in await stage.look()} == {
        ("FileTooLarge", r"claim team/a: remove core.\udcff"),
        ("OverSize", "claim team/a: it uses more"),
    }


async def test_a_driver_that_has_nothing_to_say_is_not_asked(stage: Stage) -> None:
    assert stage.driver.tells_notices()
    assert not Ports().tells_notices()
    assert isinstance(await stage.node.claim("b", 8), ClaimName)
