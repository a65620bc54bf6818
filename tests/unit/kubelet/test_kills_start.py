"""The plugin is killed at every step of a start that has much to tidy up, and once more in the next one."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.unit.kubelet.kills import Machine, play
from tests.unit.kubelet.pods import DEVICES, SCRATCH, Kubelet, Wanted, drivers

from parley.kube.memory import MemoryServer

SERVED = [DEVICES, SCRATCH]
OLD = Wanted(DEVICES, "gpu-1", shared=True)
WHOLE = Wanted(DEVICES, "gpu-0")
SMALL = Wanted(SCRATCH, size=20)


async def story(kubelet: Kubelet, abandoned: str) -> None:
    """One pod has what version 1 prepared, one was forgotten in the middle of a call; then the machine restarts,
    and finds files that nobody knows, half ones, and others missing."""
    await kubelet.begin()
    old = await kubelet.inherit(OLD)
    young = await kubelet.start(SMALL)
    await kubelet.abandon(WHOLE, SMALL, at=abandoned)
    await kubelet.restart_machine(keep=lambda _: disorder(kubelet.machine))
    await kubelet.machine.settle()
    kubelet.judge_at_rest()
    assert len(kubelet.held) == 2
    for pod in (await kubelet.start(WHOLE, OLD, SMALL), old, young):
        await kubelet.end(pod)
    await kubelet.machine.settle()
    kubelet.judge_at_rest()


def disorder(machine: Machine) -> None:
    for path in machine.cdi.iterdir():
        path.unlink()
    (machine.cdi / "parley.dev-scratch.example.com-claim-of-nobody.json").write_text("{}")
    for folder in (machine.cdi, *map(machine.state, SERVED)):
        (folder / ".parley-new-half").write_text("{")


def played(folder: Path, abandoned: str, lives: Sequence[int | str]) -> Machine:
    """The machine after the story."""
    machine = Machine(MemoryServer().client(), folder, lambda: drivers(lambda: machine, *SERVED), lives)
    try:
        play(lambda: story(Kubelet(machine, SERVED), abandoned))
    except BaseException as error:
        last = [life.steps[-1:] for life in machine.lives]
        raise AssertionError(f"the last steps of the plugin's lives were {last}") from error
    return machine


@pytest.fixture
def folders(quick_folder: Path) -> Iterator[Path]:
    return (quick_folder / str(number) for number in range(10_000))


@pytest.mark.parametrize("last", ["after prepare of c4", "before unprepare of c3"])
def test_a_kill_at_any_step_of_a_start_leaves_what_the_next_one_tidies_up(
    folders: Iterator[Path], last: str
) -> None:
    abandoned = last.split()[1]
    _, life = played(next(folders), abandoned, [last]).lives
    for second in range(1, life.steps.index("before prepare of c5") + 1):
        assert played(next(folders), abandoned, [last, second]).deaths == 2


def test_so_does_a_kill_at_any_step_of_the_first_start_over_a_checkpoint_of_version_1(
    folders: Iterator[Path],
) -> None:
    life, _ = played(next(folders), "prepare", []).lives
    for last in range(1, len(life.steps) + 1):
        assert played(next(folders), "prepare", [last]).deaths == 1


def test_so_do_two_kills_in_a_row(folders: Iterator[Path]) -> None:
    for second in range(1, 12):
        for third in range(1, 6):
            assert played(next(folders), "prepare", ["after prepare of c4", second, third]).deaths == 3
