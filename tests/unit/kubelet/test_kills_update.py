"""In a rolling update the next plugin starts beside the one that works, at any moment of what that does: neither
takes from the other what it needs, and nothing is left over."""

from pathlib import Path

from tests.unit.kubelet.drivers import PortNode, Ports
from tests.unit.kubelet.kills import Machine, play
from tests.unit.kubelet.pods import DEVICES, SCRATCH, Kubelet, drivers
from tests.unit.kubelet.test_kills import BIG, SHARE, WHOLE

from parley.kube.client import Client
from parley.kube.memory import MemoryServer
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.state.durable import Disk, Folder

SERVED = (DEVICES, SCRATCH)


class Newcomer:
    """The next plugin, which starts after one of the first one's uses of the disk, the n-th; 0 is never."""

    def __init__(self, machine: Machine, moment: int) -> None:
        self.machine = machine
        self.moments = 0
        self._moment = moment

    def look(self) -> None:
        self.moments += 1
        if self.moments != self._moment:
            return
        for driver in self.machine.make():
            state, cdi = Folder(self.machine.state(driver.name)), Folder(self.machine.cdi, mode=0o755)
            Preparation(driver, self.machine.client, state=state, cdi=cdi, boot="boot 1").restore()


async def story(kubelet: Kubelet) -> None:
    await kubelet.begin()
    first = await kubelet.start(SHARE, BIG)
    second = await kubelet.start(WHOLE)
    kubelet.judge()
    await kubelet.end(first)
    kubelet.judge_at_rest()
    await kubelet.end(second)


def played(folder: Path, moment: int) -> int:
    """How many moments the story has."""
    machine = Machine(MemoryServer().client(), folder, lambda: drivers(lambda: machine, *SERVED))
    newcomer = Newcomer(machine, moment)
    play(lambda: story(Kubelet(machine, SERVED)), newcomer.look)
    return newcomer.moments


def test_a_second_plugin_that_starts_at_any_moment_of_the_first_disturbs_nothing(quick_folder: Path) -> None:
    moments = played(quick_folder / "0", 0)
    assert moments > 15
    for moment in range(1, moments + 1):
        try:
            played(quick_folder / str(moment), moment)
        except BaseException as error:
            raise AssertionError(f"started at moment {moment} of {moments}") from error


async def test_nobody_unprepares_a_claim_while_a_start_writes_its_file(client: Client, folder: Path) -> None:
    node = PortNode(client, folder)
    claim = await node.claim("a", 7)
    await node.plugin(Ports()).prepare(claim)
    (file,) = (folder / "cdi").iterdir()
    file.unlink()
    state, locked = Folder(folder / "state"), []

    class Watched(Disk):
        def create(self, folder: Path, data: bytes, mode: int) -> Path:
            locked.append(state.is_name_locked(claim.uid))
            return super().create(folder, data, mode)

    cdi = Folder(folder / "cdi", disk=Watched())
    Preparation(Ports(), client, state=state, cdi=cdi, boot="first boot").restore()

    assert locked == [True]
    assert file.exists()
    assert not state.is_name_locked(claim.uid)
