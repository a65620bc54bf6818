"""Views of workspaces, as the driver sees them: where they are, what they take, and what they can't have."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.drivers.workspaces import GI, disk, stocked

from parley.drivers import views
from parley.drivers.workspace import WorkspaceDriver
from parley.drivers.workspace_parameters import WorkspaceClass, WorkspaceParameters
from parley.sdk import Allocation, ClaimRequest, Held, PodReference, Request
from parley.sdk.testing import Scenario, check_driver

NODES = ("a", "b", "c")


def wants(*claims: ClaimRequest[Any, Any], namespace: str = "default") -> Request[Any, Any]:
    return Request(PodReference(namespace, "p", "uid-of-p"), claims)


def a_claim(name: str, *, generated: bool = False, class_: dict[str, Any] | None = None, **raw: Any) -> Any:
    parameters, of_class = WorkspaceParameters.model_validate(raw), WorkspaceClass.model_validate(class_ or {})
    return ClaimRequest(name, f"uid-of-{name}", name, "tested", parameters, of_class, generated=generated)


def a_view(name: str, of: str, **more: Any) -> Any:
    return a_claim(name, source={"claim": of}, **more)


async def allocated(driver: WorkspaceDriver, claim: Any, node: str = "b") -> Allocation:
    return (await driver.allocate(wants(claim), node))[claim.name]


def refusals(driver: WorkspaceDriver, *claims: Any, namespace: str = "default") -> dict[str, str]:
    answer = driver.viable(wants(*claims, namespace=namespace), ("a", "b"))[claims[0].name]
    assert set(answer.viable) == {"a", "b"} - answer.reasons.keys()
    return dict(answer.reasons)


async def test_a_view_is_where_its_workspace_is_and_takes_no_room() -> None:
    driver = stocked()
    await allocated(driver, a_claim("work", size="4Gi"))
    assert refusals(driver, a_view("view", "work")) == {"a": "claim work is on node b"}
    await allocated(driver, a_view("view", "work"))
    assert refusals(driver, a_claim("other", size="1Mi")) == {"b": "0Mi of 4Gi free for workspaces, 1Mi wanted"}
    assert driver.units(a_view("view", "work")) == 0


async def test_a_view_needs_no_room_where_the_disk_has_become_smaller_than_what_is_promised_of_it() -> None:
    driver = stocked()
    await allocated(driver, a_claim("work", size="4Gi"))
    assert driver.observe(disk("b", "4Gi"), disk("b", "3Gi"))
    assert refusals(driver, a_view("view", "work")) == {"a": "claim work is on node b"}
    await allocated(driver, a_view("view", "work"))
    assert refusals(driver, a_claim("more", size="1Mi")) == {"b": "0Mi of 3Gi free for workspaces, 1Mi wanted"}


async def test_its_handle_leads_to_the_other_ones_directory_and_lets_nobody_write() -> None:
    driver = stocked()
    shown = await allocated(driver, a_claim("work", class_={"owner": {"uid": 7}}, mountPath="/work"))
    view = await allocated(driver, a_view("view", "work", mountPath="/inputs"))
    assert dict(view.data) == {
        "workspace": shown.data["workspace"],
        "bytes": GI,
        "owner": {"uid": 7, "gid": 0, "mode": "0770"},
        "mountPath": "/inputs",
        "variable": "WORKSPACE_VIEW_PATH",
        "generated": False,
        "readOnly": True,
        "source": "uid-of-work",
    }
    assert driver.uses(Held("uid-of-view", "b", view.devices, view.data)) == ("uid-of-work",)
    assert driver.uses(Held("uid-of-work", "b", shown.devices, shown.data)) == ()


async def test_a_pod_may_use_a_workspace_and_a_view_of_it_from_the_start() -> None:
    driver, both = stocked(), (a_view("view", "work", mountPath="/inputs"), a_claim("work"))
    assert refusals(driver, *both) == {}
    found = await driver.allocate(wants(*both), "a")
    assert found["view"].data["workspace"] == found["work"].data["workspace"]


async def test_what_is_not_there_is_said_and_who_waits_hears_of_it() -> None:
    driver, heard = stocked(), []
    following = asyncio.create_task(driver.follow(lambda: heard.append("changed")))
    await asyncio.sleep(0)
    why = "claim work, the source, has no workspace yet"
    assert refusals(driver, a_view("view", "work")) == {"a": why, "b": why}
    assert driver.viable(wants(a_view("view", "work")), ("a",))["view"].alternatives == ()
    await allocated(driver, a_claim("unrelated"))
    assert heard == []
    await allocated(driver, a_claim("work"))
    assert heard == ["changed"]
    following.cancel()


async def test_where_too_many_wait_each_claim_that_comes_wakes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_AWAITED", 2)
    driver, heard = stocked(), []
    following = asyncio.create_task(driver.follow(lambda: heard.append("changed")))
    await asyncio.sleep(0)
    for name in ("one", "two", "three"):
        refusals(driver, a_view("view", name))
    await allocated(driver, a_claim("three"))
    assert heard == ["changed"]
    await allocated(driver, a_claim("unrelated"))
    assert heard == ["changed"]
    following.cancel()


async def test_that_of_another_namespace_or_of_a_pod_alone_is_not_there() -> None:
    driver = stocked()
    await allocated(driver, a_claim("work"))
    await allocated(driver, a_claim("scratch", generated=True))
    assert refusals(driver, a_view("view", "work"), namespace="other").keys() == {"a", "b"}
    assert refusals(driver, a_view("view", "scratch")).keys() == {"a", "b"}
    one, other = wants(a_view("view", "work")), wants(a_view("view", "work"), namespace="other")
    assert driver.alike(one) != driver.alike(other)


async def test_a_claim_that_was_forced_away_ends_after_the_one_that_took_its_name() -> None:
    driver, later = stocked(), replace(a_claim("work"), uid="uid-of-another")
    await allocated(driver, a_claim("work"))
    await allocated(driver, later, "a")
    assert refusals(driver, a_view("view", "work")) == {"b": "claim work is on node a"}
    await driver.deallocate(later.uid)
    await driver.deallocate("uid-of-work")
    assert "has no workspace yet" in refusals(driver, a_view("view", "work"))["a"]


async def test_it_is_the_same_after_a_restart() -> None:
    driver, again = stocked(), stocked()
    shown = await allocated(driver, a_claim("work", size="3Gi"))
    view = await allocated(driver, a_view("view", "work"))
    again.restore(Held("uid-of-view", "b", view.devices, view.data))
    again.restore(Held("uid-of-work", "b", shown.devices, shown.data))
    for one in (driver, again):
        assert refusals(one, a_view("second", "work")) == {"a": "claim work is on node b"}
        assert refusals(one, a_claim("other", size="1Gi")) == {}
        await one.deallocate("uid-of-view")
        assert refusals(one, a_claim("other", size="2Gi")).keys() == {"b"}
        await one.deallocate("uid-of-work")
        assert refusals(one, a_view("second", "work")).keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"size": "1Gi"}, "leave out size, or source"),
        ({"group": "g", "reclaim": "Retain"}, "leave out group and reclaim, or source"),
        ({"reserve": {"cpu": "1"}}, "leave out reserve, or source"),
    ],
)
async def test_what_a_view_cannot_have_is_named(more: dict[str, Any], words: str) -> None:
    driver = stocked()
    await allocated(driver, a_claim("work"))
    for reason in refusals(driver, a_view("view", "work", **more)).values():
        assert reason == f"claim view has a source, and no room of its own: {words}"


async def test_nobody_shows_itself_nor_what_is_a_file_system_of_its_own() -> None:
    driver = stocked()
    itself = "source.claim=view of claim view is the claim itself: name another one"
    assert set(refusals(driver, a_view("view", "view")).values()) == {itself}
    handle = {"workspace": "w", "bytes": GI, "namespace": "default", "claim": "work", "enforce": "Image"}
    driver.restore(Held("uid-of-work", "b", (), handle))
    why = "claim work has a file system of its own (enforce=Image), which can't be shown"
    assert set(refusals(driver, a_view("view", "work")).values()) == {why}


async def test_nor_is_such_a_file_system_or_another_view_shown_to_the_pod_that_is_first_to_use_both() -> None:
    driver = stocked()
    view, limited = a_view("view", "work", mountPath="/in"), a_claim("work", class_={"enforce": "Image"})
    driver._enforcing.update(NODES)
    why = "claim work has a file system of its own (enforce=Image), which can't be shown"
    assert set(refusals(driver, view, limited).values()) == {why}
    why = "source.claim=work of claim view is a view: name the claim that it shows"
    others = a_view("work", "view", mountPath="/other"), a_view("work", "more", mountPath="/other")
    for other in others:
        assert set(refusals(driver, view, other, a_claim("more")).values()) == {why}


@pytest.mark.parametrize("name", ["", "Work", "../work", "work/other", "-work"])
def test_a_source_is_a_claims_name(name: str) -> None:
    with pytest.raises(ValidationError):
        WorkspaceParameters.model_validate({"source": {"claim": name}})


def views_of_a_workspace(kind: type[WorkspaceDriver]) -> Scenario:
    def made() -> WorkspaceDriver:
        driver = stocked(kind())
        handle = {"workspace": "w", "bytes": GI, "namespace": "default", "claim": "work"}
        driver.restore(Held("uid-of-work", "b", (), handle))
        return driver

    both = wants(a_view("view", "work"), a_claim("other", size="1Gi", mountPath="/other"))
    again = replace(both, pod=PodReference("default", "q", "uid-of-q"))
    return Scenario(made, NODES, (both, again))


async def test_views_keep_the_promises_of_a_driver() -> None:
    await check_driver(views_of_a_workspace(WorkspaceDriver))


class Forgetful(WorkspaceDriver):
    """What its views use it knows of those alone that it allocated itself."""

    def __init__(self) -> None:
        super().__init__()
        self.mine: set[str] = set()

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        self.mine.update(claim.uid for claim in request.claims)
        return await super().allocate(request, node)

    def uses(self, held: Held) -> Sequence[str]:
        return super().uses(held) if held.uid in self.mine else ()


async def test_a_driver_that_forgets_what_a_view_uses_breaks_a_promise() -> None:
    with pytest.raises(AssertionError, match=r"uses\(\) returns something else after restore\(\)"):
        await check_driver(views_of_a_workspace(Forgetful))
