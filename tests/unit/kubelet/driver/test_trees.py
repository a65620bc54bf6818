"""Trees are removed whatever is in them, and nothing outside of them."""

import os
from pathlib import Path
from typing import Any

import pytest

from parley_kubelet.driver import trees


@pytest.fixture
def trash(tmp_path: Path) -> Path:
    folder = tmp_path / "trash"
    folder.mkdir()
    return folder


def remove(trash: Path) -> None:
    with trees.opened(trash) as directory:
        for name in os.listdir(directory):  # noqa: PTH208
            trees.remove(directory, name)


def test_hostile_content_goes_and_what_it_points_to_stays(trash: Path, outside: Path) -> None:
    tree = trash / "t"
    (tree / "sub").mkdir(parents=True)
    (tree / "to-folder").symlink_to(outside)
    (tree / "sub" / "to-file").symlink_to(outside / "deep" / "file")
    (tree / "sub" / "up").symlink_to("../../../outside")
    (tree / "loop").symlink_to("loop")
    os.link(outside / "deep" / "file", tree / "hard")
    os.mkfifo(tree / "pipe")
    (tree / "setuid").write_text("")
    (tree / "setuid").chmod(0o6755)
    for name in (b"\xff\xfe", b"-rf", b" ", b"new\nline", b"x" * 255):
        (Path(os.fsdecode(os.fsencode(tree) + b"/" + name))).mkdir()
    remove(trash)
    assert list(trash.iterdir()) == []
    assert (outside / "deep" / "file").read_text() == "canary"
    assert (outside / "deep" / "deeper").is_dir()


def test_a_tree_deeper_than_paths_and_stacks_goes(trash: Path) -> None:
    directory = os.open(trash, os.O_RDONLY)
    for name in ["t", *["d" * 200] * 3000]:
        os.mkdir(name, dir_fd=directory)
        inner = os.open(name, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)
    remove(trash)
    assert list(trash.iterdir()) == []


def test_a_wide_tree_goes(trash: Path) -> None:
    (trash / "t").mkdir()
    for i in range(20_000):
        (trash / "t" / f"{i}").touch()
    remove(trash)
    assert list(trash.iterdir()) == []


def test_what_another_plugin_moves_in_between_is_removed_as_well(
    trash: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        (trash / "t" / "sub" / f"{i}" / "deep").mkdir(parents=True)
    rename, calls = os.rename, 0

    def overtaken(old: str, new: str, **directories: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            rename(old, "other", **directories)
        rename(old, new, **directories)

    monkeypatch.setattr(os, "rename", overtaken)
    with trees.opened(trash) as directory:
        trees.remove(directory, "t")
    assert list(trash.iterdir()) == []


def test_what_could_not_be_removed_is_still_below_its_name(trash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (trash / "t" / "sub" / "deep").mkdir(parents=True)
    (trash / "t" / "sub" / "deep" / "file").touch()

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        with pytest.raises(PermissionError):
            remove(trash)
    assert [path.name for path in trash.iterdir()] == ["t"]
    remove(trash)
    assert list(trash.iterdir()) == []


def test_a_link_in_the_place_of_the_tree_is_not_followed(trash: Path, outside: Path) -> None:
    (trash / "t").symlink_to(outside)
    with trees.opened(trash) as directory, pytest.raises(OSError, match="t"):
        trees.remove(directory, "t")
    assert (outside / "deep" / "file").exists()


def test_what_is_gone_meanwhile_is_no_error(trash: Path) -> None:
    with trees.opened(trash) as directory:
        trees.remove(directory, "nothing")
        assert not trees.move(directory, "nothing", directory, "other")
        assert not trees.is_directory(directory, "nothing")


def test_a_directory_is_made_with_mode_and_owner_whatever_the_umask(trash: Path) -> None:
    before = os.umask(0o077)
    try:
        with trees.opened(trash) as directory:
            for _ in range(2):
                trees.make(directory, "made", 0o777, (os.getuid(), os.getgid()))
    finally:
        os.umask(before)
    assert (trash / "made").stat().st_mode & 0o7777 == 0o777


def test_a_foreign_group_leaves_the_setgid_bit(trash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(os, "fchmod", lambda *_: calls.append("chmod"))
    monkeypatch.setattr(os, "fchown", lambda *_: calls.append("chown"))
    with trees.opened(trash) as directory:
        trees.make(directory, "made", 0o2775, (1000, 2000))
    assert calls == ["chown", "chmod", "chown"]
