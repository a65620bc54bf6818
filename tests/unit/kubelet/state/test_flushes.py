"""How often the disk is flushed: for two records of a claim, and their file's name; many claims share that."""

import asyncio
from pathlib import Path

from tests.unit.kubelet.drivers import name_of

from parley.kube.client import Client
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.state.durable import Disk, Folder
from parley_kubelet.testing import allocated_status, create_claim

MANY = 100


class CountingDisk(Disk):
    """Counts flushes since it was asked last."""

    def __init__(self) -> None:
        self._flushed = 0

    def flush(self, path: Path) -> None:
        self._flushed += 1
        super().flush(path)

    def since(self) -> int:
        flushed, self._flushed = self._flushed, 0
        return flushed


async def test_flushes_of_one_claim_and_of_a_hundred_at_once(client: Client, tmp_path: Path) -> None:
    disk = CountingDisk()
    devices = [{"name": f"gpu-{number}", "model": "a100"} for number in range(MANY)]
    plugin = Preparation(
        DeviceNodeDriver("n1", Configuration.model_validate({"devices": devices})),
        client,
        state=Folder(tmp_path / "state", disk=disk),
        cdi=Folder(tmp_path / "cdi", disk=disk),
        boot="b",
    )
    claims = [
        name_of(await create_claim(client, f"c{number}", allocated_status("n1", [f"gpu-{number}"])))
        for number in range(MANY)
    ]
    disk.since()

    await plugin.prepare(claims[0])
    assert disk.since() == 4
    await plugin.prepare(claims[0])
    assert disk.since() == 0
    await plugin.unprepare(claims[0])
    assert disk.since() == 4
    await plugin.unprepare(claims[0])
    assert disk.since() == 0

    await asyncio.gather(*map(plugin.prepare, claims))
    assert disk.since() < MANY
    await asyncio.gather(*map(plugin.unprepare, claims))
    assert disk.since() < MANY
