"""Directories are measured while they are in use and once after that, large ones seldom; none waits for good."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.driver.test_measuring import unhurried

from parley_kubelet.driver import measuring, trees, usage
from parley_kubelet.driver.measuring import Measured
from parley_kubelet.driver.usage import DiskUsage


class Watch:
    """Of a folder, on a clock of its own; notes what is measured."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.takes, self.looked = 0.0, 0.0, list[str]()
        self.folder = folder
        self.usage = DiskUsage(partial(trees.opened, folder), unhurried, lambda: self.now)
        self._measure = measuring.measure
        monkeypatch.setattr(measuring, "measure", self.measure)

    def measure(self, parent: int, name: str, pace: object) -> Measured:
        self.looked.append(name)
        self.now += self.takes
        return self._measure(parent, name, unhurried())

    def follow(self, *names: str) -> list[str]:
        """Returns what was measured."""
        self.looked.clear()
        self.usage.follow(dict.fromkeys(names, "team"))
        self.usage.wait()
        return list(self.looked)


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    for name in "abc":
        (tmp_path / name).mkdir()
    return Watch(tmp_path, monkeypatch)


def size(watch: Watch, name: str) -> int:
    found = watch.usage.of(name)
    assert found is not None
    return found.bytes


def test_what_is_in_use_is_measured_again_and_again(watch: Watch) -> None:
    assert sorted(watch.follow("a", "b")) == ["a", "b"]
    assert watch.follow("a", "b") == []
    (watch.folder / "a" / "file").write_bytes(bytes(100_000))
    watch.now += usage.PAUSE
    assert sorted(watch.follow("a", "b")) == ["a", "b"]
    assert size(watch, "a") >= 100_000
    assert size(watch, "b") == 0


def test_what_is_not_in_use_any_more_is_measured_once(watch: Watch) -> None:
    watch.follow("a")
    (watch.folder / "a" / "file").write_bytes(bytes(100_000))
    assert watch.follow() == ["a"]
    assert size(watch, "a") >= 100_000
    watch.now += 10 * usage.PAUSE
    assert watch.follow() == []
    assert watch.follow("a") == ["a"]


def test_a_look_that_took_long_is_not_repeated_soon(watch: Watch) -> None:
    watch.takes = 100
    watch.follow("a")
    watch.takes = 0
    watch.now += 999
    assert watch.follow("a") == []
    watch.now += 1
    assert watch.follow("a") == ["a"]


def test_one_that_nobody_uses_and_that_is_gone_is_forgotten(watch: Watch) -> None:
    watch.follow("a")
    (watch.folder / "a").rmdir()
    watch.now += usage.PAUSE
    watch.follow("a")
    assert watch.usage.of("a") is None
    assert list(watch.usage.names()) == ["a"]
    watch.follow()
    assert list(watch.usage.names()) == []


class Looked(dict[str, Any]):
    """Counts how often all of it is looked through."""

    times = 0

    def items(self) -> Any:
        self.times += 1
        return super().items()


def test_whose_turn_it_is_is_not_looked_up_anew_for_each_of_thousands(watch: Watch) -> None:
    names = [str(number) for number in range(50)]
    for name in names:
        (watch.folder / name).mkdir()
    watch.usage._followed = looked = Looked()
    assert sorted(watch.follow(*names)) == sorted(names)
    assert looked.times < 10


def test_one_that_is_left_while_it_is_measured_is_measured_once_more(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(parent: int, name: str, pace: object) -> Measured:
        begun.set()
        go_on.wait(10)
        return watch.measure(parent, name, pace)

    monkeypatch.setattr(measuring, "measure", slow)
    watch.usage.follow({"a": "team"})
    begun.wait(10)
    watch.usage.follow({})
    go_on.set()
    watch.usage.wait()
    assert watch.looked == ["a", "a"]


def test_those_that_wait_longest_come_first(watch: Watch) -> None:
    watch.follow("b")
    watch.now += 1
    watch.follow("b", "a")
    watch.now += usage.PAUSE
    assert watch.follow("a", "b", "c") == ["b", "a", "c"]


def test_namespaces_take_turns_and_one_with_many_large_trees_keeps_no_other_waiting(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its looks takes as long as one may: so it has always something due."""
    large = {f"large{number}": "team" for number in range(20)}
    small = {"a": "other", "b": "third"}
    for name in large:
        (watch.folder / name).mkdir()
    waited: dict[str, list[float]] = {name: [] for name in small}
    seen = dict.fromkeys(small, 0.0)

    def slow(parent: int, name: str, pace: object) -> Measured:
        watch.takes = 300.0 if name in large else 0.1
        if name in small:
            waited[name].append(watch.now - seen[name])
            seen[name] = watch.now
        if watch.now > 20_000:
            watch.usage._followed.clear()
        return watch.measure(parent, name, pace)

    monkeypatch.setattr(measuring, "measure", slow)
    watch.usage.follow({**large, **small})
    watch.usage.wait()
    assert {name: max(times) <= 301 for name, times in waited.items()} == dict.fromkeys(small, True), waited
    assert set(large) <= set(watch.looked)
