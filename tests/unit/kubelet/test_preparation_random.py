"""Random lives of claims on a node: calls in any order, crashes at every write, restarts, two plugins at once.

What must always hold: no device is handed out whole twice, or to more claims than it has shares; every claim
in the checkpoint has its specification after a start, and no other has one.
"""

import asyncio
import errno
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from parley.kube.memory import MemoryServer
from parley_kubelet.cdi import specification
from parley_kubelet.checkpoint import Checkpoint, PreparedClaims
from parley_kubelet.devices import NodeDevice
from parley_kubelet.durable import Folder
from parley_kubelet.handle import Refused
from parley_kubelet.preparation import ClaimName, Preparation
from parley_kubelet.testing import allocated_status, create_claim

DRIVER = "device.parley.dev"
DEVICES = (
    NodeDevice(name="gpu-0", model="a100"),
    NodeDevice(name="gpu-1", model="a100", shares=2),
    NodeDevice(name="gpu-2", model="a100", shares=3),
)
NAMES = st.sampled_from([device.name for device in DEVICES])


class Crashed(OSError):
    """What the disk says when the plugin dies in the middle."""


class Disk:
    """Fails the n-th change from now on, once."""

    def __init__(self) -> None:
        self.changes_left: int | None = None

    def change(self) -> None:
        if self.changes_left is None:
            return
        self.changes_left -= 1
        if self.changes_left < 0:
            self.changes_left = None
            raise Crashed(errno.EIO, "Input/output error")


class FailingFolder(Folder):
    """A folder on that disk."""

    def __init__(self, path: Path, disk: Disk) -> None:
        super().__init__(path)
        self._disk = disk

    def write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        self._disk.change()
        super().write(name, data, mode)

    def remove(self, name: str) -> None:
        self._disk.change()
        super().remove(name)


class ClaimsOnANode(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="pk-", dir="/tmp"))
        self.client = MemoryServer().client()
        self.disk = Disk()
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
        assert len(files) == len(prepared)
        for uid in prepared:
            assert uid in "".join(files)

    def _started(self) -> Preparation:
        self.disk.changes_left = None
        plugin = Preparation(
            self.client,
            driver=DRIVER,
            node="n1",
            devices=lambda: DEVICES,
            state=FailingFolder(self.folder / "state", self.disk),
            cdi=FailingFolder(self.folder / "cdi", self.disk),
        )
        plugin.restore()
        return plugin

    def _checkpoint(self) -> PreparedClaims:
        return Checkpoint(Folder(self.folder / "state")).read()

    @rule(devices=st.sets(NAMES, min_size=1), shared=st.booleans())
    def allocate(self, devices: set[str], shared: bool) -> None:
        status = allocated_status("n1", sorted(devices), shared=shared)
        claim = self.runner.run(create_claim(self.client, f"c{len(self.claims)}", status))
        self.claims.append(ClaimName("team", claim.metadata.name, claim.metadata.uid))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), plugin=st.integers(0, 1), crash=st.none() | st.integers(0, 2))
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
    @rule(data=st.data(), plugin=st.integers(0, 1), crash=st.none() | st.integers(0, 2))
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
            assert specification(DRIVER, prepared[uid])["devices"][0]["name"] == uid
            assert path.stat().st_size > 0

    @invariant()
    def no_device_is_handed_out_too_often(self) -> None:
        prepared = self._checkpoint().values()
        holders = Counter(device.name for claim in prepared for device in claim.devices)
        whole = {device.name for claim in prepared if not claim.shared for device in claim.devices}
        shares = {device.name: device.shares for device in DEVICES}
        for name, count in holders.items():
            assert count <= (1 if name in whole else shares[name])


TestClaimsOnANode = ClaimsOnANode.TestCase
TestClaimsOnANode.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
