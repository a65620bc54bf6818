"""Node drivers for tests: one that notes what it is asked for and fails as it is told, and its node."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from parley.api.builtin import BuiltinClaim
from parley.kube.client import Client
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.edits import Edits
from parley_kubelet.hooks import DeviceName, Health, HeldClaim, NodeClaim, NodeDriver, Prepared, Settings
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import allocated_status, create_claim

DRIVER = "ports.example.com"


class Port(BaseModel):
    number: int


class PortSettings(Settings):
    base: int = 0


class Ports(NodeDriver[Port, PortSettings]):
    """Opens ports; `calls` are what it was asked for, `open` which ports are. Without `may_go_on` a call hangs,
    with `fault` it fails."""

    name = DRIVER
    handle = Port
    settings = PortSettings

    def __init__(self, node: str = "n1", settings: PortSettings | None = None) -> None:
        super().__init__(node, settings or PortSettings())
        self.calls: list[str] = []
        self.open: set[int] = set()
        self.states: list[Any] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.entered = asyncio.Event()
        self.fault: BaseException | None = None

    async def prepare(self, claim: NodeClaim[Port]) -> Prepared:
        await self._called(f"prepare {claim.name}")
        self.open.add(claim.handle.number)
        return Prepared(Edits(env={"PORT": str(claim.handle.number)}), {"opened": claim.handle.number})

    async def unprepare(self, held: HeldClaim[Port]) -> None:
        await self._called(f"unprepare {held.claim.name}")
        self.states.append(held.state)
        self.open.discard(held.claim.handle.number)

    async def remove_data(self, claim: NodeClaim[Port]) -> None:
        await self._called(f"remove {claim.name} {claim.uid} {claim.handle.number}")

    async def _called(self, what: str) -> None:
        self.calls.append(what)
        self.entered.set()
        await self.may_go_on.wait()
        if self.fault is not None:
            raise self.fault


class TellingPorts(Ports):
    """Tells of health what `told` says, or fails with `silent`."""

    def __init__(self, node: str = "n1", settings: PortSettings | None = None) -> None:
        super().__init__(node, settings)
        self.told: Sequence[Health] = ()
        self.silent: BaseException | None = None

    async def health(self, held: Sequence[HeldClaim[Port]]) -> Sequence[Health]:
        if self.silent is not None:
            raise self.silent
        return self.told


class PortNode:
    """A node's folders; each `plugin` is a new start of the plugin over them."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.folder = folder

    def plugin(self, driver: Ports, *, boot: str = "first boot", **options: Any) -> Preparation:
        state, cdi = Folder(self.folder / "state"), Folder(self.folder / "cdi")
        preparation = Preparation(driver, self.client, state=state, cdi=cdi, boot=boot, **options)
        preparation.restore()
        return preparation

    def files(self) -> list[str]:
        """The CDI files."""
        return sorted(path.name for path in (self.folder / "cdi").iterdir())

    async def claim(
        self, name: str, number: int = 1, *devices: str, data: Mapping[str, Any] | None = None
    ) -> ClaimName:
        """A claim that is allocated on this node."""
        handle = {"number": number} if data is None else data
        status = allocated_status("n1", devices, driver=DRIVER, data=handle)
        return name_of(await create_claim(self.client, name, status))


def name_of(claim: BuiltinClaim) -> ClaimName:
    return ClaimName(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


def port(name: str) -> DeviceName:
    return DeviceName("n1", name)
