"""Workspaces that are retained when their claim goes: which ones, where, and the room that they take."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.kubelet.driver.workspace_folders import claim, driver, retained, trash

from parley_kubelet.hooks import HeldClaim


async def test_one_that_is_retained_stays_where_no_claim_finds_it(tmp_path: Path) -> None:
    kept = claim("a", retain=2, bytes=3 * 1024**3)
    await driver(tmp_path).prepare(kept)
    (tmp_path / "data" / "id-of-a" / "file").write_text("result")
    for _ in range(2):
        await driver(tmp_path).remove_data(kept)
    (place,) = (tmp_path / "retained" / "team").iterdir()
    assert place.name.startswith(f"a.id-of-a.{3 * 1024**3}.")
    assert (place / "file").read_text() == "result"
    await driver(tmp_path).prepare(kept)
    assert list((tmp_path / "data" / "id-of-a").iterdir()) == [], "the same claim starts over"
    assert trash(tmp_path) == []


async def test_of_a_namespace_the_newest_stay_and_others_are_not_touched(tmp_path: Path) -> None:
    node = driver(tmp_path)
    for namespace in ("team", "other"):
        for name in "abcd":
            one = replace(claim(f"{name}", retain=2, workspace=f"id-of-{name}-{namespace}"), namespace=namespace)
            await node.prepare(one)
            await node.remove_data(one)
    assert retained(tmp_path) == {"team": ["c", "d"], "other": ["c", "d"]}
    (tmp_path / "retained" / "team" / "by-hand").mkdir()
    one = claim("e", retain=1)
    await node.prepare(one)
    await node.remove_data(one)
    node.devices()
    node._sweeper.join()
    assert retained(tmp_path) == {"other": ["c", "d"], "team": ["e", "by-hand"]}
    assert trash(tmp_path) == []


@pytest.mark.parametrize("newest", ["20991231T235959999999Z", "99991231T235959999999Z", "99999999T999999999999Z"])
async def test_the_newest_stay_also_where_the_clock_was_put_back(tmp_path: Path, newest: str) -> None:
    place = tmp_path / "retained" / "team"
    (place / f"first.id-of-first.1.{newest}").mkdir(parents=True)
    for name in ("a", "b"):
        one = claim(name, retain=2)
        await driver(tmp_path).prepare(one)
        await driver(tmp_path).remove_data(one)
    kept = {"team": ["a", "b"]} if newest.startswith("2099") else {"team": ["b", "first"]}
    assert retained(tmp_path) == kept


async def test_that_of_a_generated_claim_can_be_retained_too(tmp_path: Path) -> None:
    one = claim("a", generated=True, retain=1)
    await driver(tmp_path).prepare(one)
    await driver(tmp_path).unprepare(HeldClaim(one, None))
    assert retained(tmp_path) == {"team": ["a"]}


async def test_what_is_retained_takes_room(tmp_path: Path) -> None:
    node = driver(tmp_path, size="10Gi")
    for name, size in (("a", 3), ("b", 4)):
        one = claim(name, retain=9, bytes=size * 1024**3)
        await node.prepare(one)
        await node.remove_data(one)
    assert node.devices()[0].capacity == {"size": str(3 * 1024**3)}
    shutil.rmtree(next((tmp_path / "retained" / "team").glob("b.*")))
    assert node.devices()[0].capacity == {"size": str(7 * 1024**3)}


def anywhere(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(f"**/{pattern}"))


@pytest.mark.parametrize("name", ["..", ".", "../../x", "/etc", "a/../../b", "x" * 253, "A B\n", ""])
async def test_names_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    root = tmp_path / "deep" / "root"
    one = replace(claim("a", retain=1), namespace=name, name=name)
    await driver(root).prepare(one)
    await driver(root).remove_data(one)
    (found,) = anywhere(tmp_path, "*id-of-a.*")
    assert found.parent.parent == root / "retained"
