"""Random lives of claims on a node: calls in any order, crashes at every write, restarts, two plugins at once.

What must always hold: no device is handed out whole twice, or to more claims than it has shares; every prepared
claim has its specification after a start, and no other has one.
"""

import asyncio
import errno
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from parley.kube.memory import MemoryServer
from parley_kubelet.cdi.specifications import specification
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.hooks import Refused
from parley_kubelet.state.checkpoint import Checkpoint, Entries
from parley_kubelet.state.durable import Disk, Folder
from parley_kubelet.testing import allocated_status, create_claim

DRIVER = "device.parley.dev"
SHARES = {"gpu-0": 1, "gpu-1": 2, "gpu-2": 3}
CONFIGURATION = Configuration.model_validate(
    {"devices": [{"name": name, "model": "a100", "slices": shares} for name, shares in SHARES.items()]}
)
NAMES = st.sampled_from(list(SHARES))


class Crashed(OSError):
    """What the disk says when the plugin dies in the middle."""


class FailingDisk(Disk):
    """Fails the n-th change from now on, once."""

    def __init__(self) -> None:
        self.changes_left: int | None = None

    def create(self, folder: Path, data: bytes, mode: int) -> Path:
        self._change()
        return super().create(folder, data, mode)

    def flush(self, path: Path) -> None:
        self._change()
        super().flush(path)

    def rename(self, path: Path, target: Path) -> None:
        self._change()
        super().rename(path, target)

    def remove(self, path: Path) -> None:
        self._change()
        super().remove(path)

    def _change(self) -> None:
        if self.changes_left is None:
            return
        self.changes_left -= 1
        if self.changes_left < 0:
            self.changes_left = None
            raise Crashed(errno.EIO, "Input/output error")


class ClaimsOnANode(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="pk-", dir="/tmp"))
        self.client = MemoryServer().client()
        self.disk = FailingDisk()
        self.claims: list[ClaimName] = []
        self.answered: set[str] = set()
        """UIDs of the claims that the kubelet holds for prepared."""
        self.restart()

    def teardown(self) -> None:
        self.runner.close()
        shutil.rmtree(self.folder)

    @rule()
    def restart(self) -> None:
        self.plugins = (self._started(), self._started())
        prepared = self._checkpoint()
        files = {path.name: path.read_bytes() for path in (self.folder / "cdi").glob("*.json")}
        finished = [uid for uid, entry in prepared.items() if entry.phase == "prepared"]
        assert len(files) == len(finished)
        for uid in finished:
            assert uid in "".join(files)

    def _started(self) -> Preparation:
        self.disk.changes_left = None
        plugin = Preparation(
            DeviceNodeDriver("n1", CONFIGURATION),
            self.client,
            state=Folder(self.folder / "state", disk=self.disk),
            cdi=Folder(self.folder / "cdi", disk=self.disk),
            boot="this boot",
        )
        plugin.restore()
        return plugin

    def _checkpoint(self) -> Entries:
        return Checkpoint(Folder(self.folder / "state"), "n1").read()

    @rule(devices=st.sets(NAMES, min_size=1), shared=st.booleans())
    def allocate(self, devices: set[str], shared: bool) -> None:
        status = allocated_status("n1", sorted(devices), shared=shared)
        claim = self.runner.run(create_claim(self.client, f"c{len(self.claims)}", status))
        self.claims.append(ClaimName("team", claim.metadata.name, claim.metadata.uid))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), plugin=st.integers(0, 1), crash=st.none() | st.integers(0, 11))
    def prepare(self, data: st.DataObject, plugin: int, crash: int | None) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        self.disk.changes_left = crash
        try:
            self.runner.run(self.plugins[plugin].prepare(claim))
            self.answered.add(claim.uid)
        except Refused:
            assert claim.uid not in self.answered
        except Crashed:
            self.restart()

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), plugin=st.integers(0, 1), crash=st.none() | st.integers(0, 11))
    def unprepare(self, data: st.DataObject, plugin: int, crash: int | None) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        self.disk.changes_left = crash
        self.answered.discard(claim.uid)
        try:
            self.runner.run(self.plugins[plugin].unprepare(claim))
            assert claim.uid not in self._checkpoint()
        except Crashed:
            self.restart()

    @invariant()
    def what_the_kubelet_holds_for_prepared_is(self) -> None:
        prepared = self._checkpoint()
        assert self.answered <= set(prepared)
        for uid in self.answered:
            (path,) = (self.folder / "cdi").glob(f"*{uid}.json")
            assert prepared[uid].phase == "prepared"
            assert orjson.loads(path.read_bytes()) == specification(DRIVER, prepared[uid])

    @invariant()
    def no_device_is_handed_out_too_often(self) -> None:
        prepared = self._checkpoint().values()
        holders = Counter(device.name for claim in prepared for device in claim.devices)
        whole = {device.name for claim in prepared if not claim.handle["shared"] for device in claim.devices}
        for name, count in holders.items():
            assert count <= (1 if name in whole else SHARES[name])


TestClaimsOnANode = ClaimsOnANode.TestCase
TestClaimsOnANode.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
