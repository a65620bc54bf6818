"""What a tree uses is counted within it alone, in little memory and in short turns, whatever its owner does."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.attacked import SWAPS, attacker

from parley_kubelet.driver import trees
from parley_kubelet.driver.measuring import DEEPEST, Measured, Pace, measure

_KI = 1024
TURNS = int(os.environ.get("HOSTILE_TURNS", "200"))
CANARY = 8 * _KI * _KI


def unhurried() -> Pace:
    return Pace(sleep=lambda _: None)


def measured(tree: Path, pace: Pace | None = None) -> Measured:
    with trees.opened(tree.parent) as parent:
        return measure(parent, tree.name, pace or unhurried())


def used(tree: Path) -> int:
    """The same by du(1)."""
    found = subprocess.run(["du", "-s", "--block-size=1", tree], check=True, capture_output=True, text=True)
    return int(found.stdout.split()[0]) - tree.stat().st_blocks * 512


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40_000), st.integers(1, 4)), max_size=12))
def test_it_counts_what_du_counts(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int, int]]
) -> None:
    tree = tmp_path_factory.mktemp("tree")
    for number, (depth, size, names) in enumerate(sizes):
        folder = tree.joinpath(*"abcde"[:depth])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}-0").write_bytes(os.urandom(size))
        for other in range(1, names):
            os.link(folder / f"{number}-0", tree / f"{number}-{other}")
    os.sync()
    found = measured(tree)
    assert abs(found.bytes - used(tree)) <= len(sizes)  # a file's parts are fractions
    assert found.files == len(list(tree.rglob("*")))
    assert found.missing == ""


def test_holes_links_and_what_is_outside_count_nothing(tmp_path: Path, outside: Path) -> None:
    (outside / "large").write_bytes(bytes(CANARY))
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "link").symlink_to(outside)
    (tree / "sub" / "up").symlink_to("../..")
    os.mkfifo(tree / "pipe")
    with (tree / "giant").open("wb") as giant:
        giant.truncate(1 << 40)
    assert measured(tree).bytes < 64 * _KI


def test_directories_that_are_swapped_for_links_meanwhile_lead_nowhere(tmp_path: Path, outside: Path) -> None:
    (outside / "large").write_bytes(bytes(CANARY))
    tree = tmp_path / "place"
    for folder in ("t/x/y/z", "t/sub/x/y/z", "t/sub/sub/x/y/z"):
        (tree / folder).mkdir(parents=True)
    with attacker(SWAPS, tree, outside):
        found = [measured(tree) for _ in range(TURNS)]
    assert all(one.bytes < CANARY for one in found)
    assert max(one.files for one in found) > 3


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
def test_what_is_mounted_in_it_is_not_counted(tmp_path: Path, outside: Path) -> None:
    (outside / "large").write_bytes(bytes(CANARY))
    (tmp_path / "tree" / "m").mkdir(parents=True)
    subprocess.run(["mount", "--bind", outside, tmp_path / "tree" / "m"], check=True)
    try:
        assert measured(tmp_path / "tree").bytes < CANARY
    finally:
        subprocess.run(["umount", tmp_path / "tree" / "m"], check=True)


@contextmanager
def deep(folder: Path, levels: int) -> Iterator[Path]:
    """A tree of so many directories, too deep for a path."""
    before, tree = Path.cwd(), folder / "tree"
    tree.mkdir()
    os.chdir(tree)
    try:
        for _ in range(levels):
            Path("d").mkdir()
            os.chdir("d")
        Path("file").write_bytes(bytes(CANARY))
    finally:
        os.chdir(before)
    yield tree
    with trees.opened(folder) as parent:
        trees.remove(parent, "tree")


def test_of_a_tree_that_is_too_deep_the_rest_is_said_to_be_missing(tmp_path: Path) -> None:
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with deep(tmp_path, DEEPEST) as tree:
        assert measured(tree).bytes >= CANARY
        assert measured(tree).missing == ""
        (tree / "d").rename(tmp_path / "aside")
        (tree / "e").mkdir()
        (tmp_path / "aside").rename(tree / "e" / "d")
        found = measured(tree)
    assert found.bytes < CANARY
    assert found.missing == "directories more than 100 levels deep were not measured"
    assert len(os.listdir("/proc/self/fd")) == files  # noqa: PTH208


def test_what_changes_while_it_is_counted_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "file").touch()
    entered = trees.entered

    def gone(parent: int, name: str) -> object:
        if name == "b":
            raise FileNotFoundError(2, "No such file or directory")
        if name == "c":
            raise NotADirectoryError(20, "Not a directory")
        return entered(parent, name)

    monkeypatch.setattr(trees, "entered", gone)
    found = measured(tmp_path / "tree")
    assert (found.files, found.missing) == (4, "")


def test_what_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    entered = trees.entered

    def refused(parent: int, name: str) -> object:
        if name == "a":
            raise PermissionError(13, "Permission denied")
        return entered(parent, name)

    monkeypatch.setattr(trees, "entered", refused)
    assert measured(tmp_path / "tree").missing == "a directory in it can't be read: Permission denied"


class Slow(Pace):
    """On a machine that takes a millisecond for a file; `now` is its clock."""

    def __init__(self, **given: float) -> None:
        self.now = self.slept = 0.0
        super().__init__(clock=lambda: self.now, sleep=self._rested, **given)

    def step(self) -> None:
        self.now += 0.001
        super().step()

    def _rested(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def fill(tree: Path, files: int) -> None:
    tree.mkdir()
    for number in range(files):
        (tree / f"{number}").touch()


def test_it_works_for_a_share_of_the_time(tmp_path: Path) -> None:
    fill(tmp_path / "tree", 2000)
    slow = Slow(share=0.1)
    assert measured(tmp_path / "tree", slow).files == 2000
    assert slow.slept / slow.now == pytest.approx(0.9, abs=0.01)


def test_a_tree_that_takes_too_long_is_left_and_that_is_said(tmp_path: Path) -> None:
    fill(tmp_path / "tree", 2000)
    found = measured(tmp_path / "tree", Slow(seconds=1.0))
    assert 1000 <= found.files < 1100
    assert found.missing == f"it has too many files: only {found.files} of them were measured"


def test_who_adds_files_while_they_are_counted_does_not_keep_it_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    fill(tree, 100)
    step = Pace.step

    def followed(pace: Pace) -> None:
        (tree / f"new-{time.monotonic_ns()}").touch()
        step(pace)

    monkeypatch.setattr(Pace, "step", followed)
    began = time.monotonic()
    measured(tree, Pace(seconds=0.3, sleep=lambda _: None))
    assert time.monotonic() - began < 60
