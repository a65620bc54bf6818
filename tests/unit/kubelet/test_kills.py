"""The plugin is killed, or the power is cut, at every step of a story: no trace is left, nothing is lost or handed
out twice."""

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.kills import Machine, play
from tests.unit.kubelet.lossy import LossyDisk
from tests.unit.kubelet.pods import DEVICES, SCRATCH, Kubelet, Reaction, Wanted, drivers

from parley.kube.memory import MemoryServer

WHOLE = Wanted(DEVICES, "gpu-0")
SHARE = Wanted(DEVICES, "gpu-1", shared=True)
BIG, SMALL = Wanted(SCRATCH, size=60), Wanted(SCRATCH, size=20)


async def story(kubelet: Kubelet) -> None:
    """Several claims in a call and several drivers at once; a device that another pod still has; claims that are
    gone before they are unprepared, with receipts for them."""
    await kubelet.begin()
    first = await kubelet.start(WHOLE, BIG)
    second = await kubelet.start(SHARE, SHARE, SMALL)
    await kubelet.refused(WHOLE)
    await kubelet.lose(first)
    assert await kubelet.owed() == (len(first.claims) if first else 0)
    await kubelet.end(first)
    assert await kubelet.owed() == 0
    third = await kubelet.start(WHOLE, BIG)
    await kubelet.machine.settle()
    kubelet.judge_at_rest()
    for pod in (second, third):
        await kubelet.end(pod)
    await kubelet.machine.settle()
    kubelet.judge_at_rest()
    assert kubelet.held == {}


async def short_story(kubelet: Kubelet) -> None:
    """One pod that comes and goes, in the place of another one if that goes while it is prepared."""
    await kubelet.begin()
    await kubelet.end(await kubelet.start(WHOLE, BIG))
    await kubelet.machine.settle()
    kubelet.judge_at_rest()


Story = Callable[[Kubelet], Coroutine[None, None, None]]

BOTH = (DEVICES, SCRATCH)


def played(
    told: Story,
    folder: Path,
    *lives: int,
    served: Sequence[str] = BOTH,
    reaction: Reaction = Reaction.REPEAT,
    losing: Callable[[LossyDisk], None] | None = None,
) -> Machine:
    """The machine after a story."""
    machine = Machine(MemoryServer().client(), folder, lambda: drivers(lambda: machine, *served), lives)
    machine.losing = losing
    play(lambda: told(Kubelet(machine, served, reaction)))
    assert machine.deaths == len(lives), f"died {machine.deaths} times, not {len(lives)}"
    return machine


def killed_everywhere(told: Story, folder: Path, **how: Any) -> None:
    """Play the story as often as it has steps; at each of them the plugin dies once."""
    (life,) = played(told, folder / "0", **how).lives
    for last in range(1, len(life.steps) + 1):
        try:
            played(told, folder / str(last), last, **how)
        except BaseException as error:
            raise AssertionError(f"killed at step {last} of {len(life.steps)}, {life.steps[last - 1]}") from error


def test_a_kill_at_any_step_changes_nothing_in_the_end(quick_folder: Path) -> None:
    killed_everywhere(story, quick_folder)


@pytest.mark.parametrize("driver", BOTH)
def test_nor_does_it_with_a_single_driver(quick_folder: Path, driver: str) -> None:
    killed_everywhere(short_story, quick_folder, served=[driver])


@pytest.mark.parametrize("reaction", [Reaction.END, Reaction.FORGET], ids=["deleted", "forgotten"])
def test_nor_does_it_if_the_pod_goes_then(quick_folder: Path, reaction: Reaction) -> None:
    killed_everywhere(short_story, quick_folder, reaction=reaction)


def test_nor_does_a_power_cut_that_undoes_changes_of_names(quick_folder: Path) -> None:
    killed_everywhere(story, quick_folder, losing=LossyDisk.lose_names)


def test_nor_one_that_empties_files(quick_folder: Path) -> None:
    killed_everywhere(short_story, quick_folder, losing=LossyDisk.lose_contents)
