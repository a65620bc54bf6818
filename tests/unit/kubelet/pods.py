"""Pods on a node whose plugin may die at any step: the kubelet that starts and ends them, and what must hold.

The kubelet repeats a call until it is answered, or ends the pod, or the pod is deleted by force and the machine
goes down, so that nobody asks for its claims again. The devices are those of a configuration file and of
examples/scratch.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Any, Final

import orjson
from examples.scratch.scratch_node import Place, ScratchNode
from tests.unit.kubelet.kills import Killed, Machine, Plugin
from tests.unit.kubelet.state.test_checkpoint import write_version_1

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLASSES, NODES
from parley_kubelet.cdi.specifications import specification
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.hooks import NodeDriver
from parley_kubelet.proto import dra_v1_pb2 as v1
from parley_kubelet.state.checkpoint import Checkpoint, CheckpointEntry
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import allocated_status, create_claim

DEVICES: Final = "device.parley.dev"
SCRATCH: Final = ScratchNode.name
SHARES: Final = {"gpu-0": 1, "gpu-1": 2}
_CONFIGURATION: Final = Configuration.model_validate(
    {"devices": [{"name": name, "model": "a100", "slices": shares} for name, shares in SHARES.items()]}
)


class Reaction(Enum):
    """What becomes of a pod whose claims were being prepared when the plugin died; another takes its place."""

    REPEAT = "it is started all the same"
    END = "it is deleted"
    FORGET = "it is deleted by force and the machine goes down"


@dataclass(frozen=True)
class Wanted:
    """What a pod asks for: a device, or MiB of scratch."""

    driver: str
    device: str = "scratch"
    shared: bool = False
    size: int = 0

    def status(self) -> dict[str, Any]:
        data = {"sizeMiB": self.size} if self.size else None
        return allocated_status("n1", [self.device], shared=self.shared, driver=self.driver, data=data)


@dataclass(frozen=True)
class Pod:
    """Its claims, with their drivers."""

    wanted: Sequence[Wanted]
    claims: Sequence[BuiltinClaim]

    def of(self, driver: str) -> list[BuiltinClaim]:
        return [claim for wanted, claim in zip(self.wanted, self.claims, strict=True) if wanted.driver == driver]


def drivers(machine: Callable[[], Machine], *names: str) -> Sequence[NodeDriver[Any, Any]]:
    """As they are after a start of the plugin."""
    place = Place(folder=machine().folder / "scratch", size_mib=100)
    made: Mapping[str, NodeDriver[Any, Any]] = {
        DEVICES: DeviceNodeDriver("n1", _CONFIGURATION),
        SCRATCH: ScratchNode("n1", place),
    }
    return [made[name] for name in names]


class Kubelet:
    """Of one machine. `held` are the claims, by UID, that it holds for prepared."""

    def __init__(self, machine: Machine, served: Sequence[str], reaction: Reaction = Reaction.REPEAT) -> None:
        self.machine = machine
        self.held: dict[str, Pod] = {}
        self._served = served
        self._reaction = reaction
        self._numbers = count(1)
        self._boot = machine.boot
        machine.judge = self.judge

    async def begin(self) -> None:
        """The API server's objects that a node and its plugin need."""
        client = self.machine.client
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        for driver in self._served:
            name = driver.partition(".")[0]
            await client.create(CLASSES, {"metadata": {"name": name}, "driverName": driver})

    async def start(self, *wanted: Wanted) -> Pod | None:
        """A pod that runs; None of what it asks for is served here."""
        mine = [one for one in wanted if one.driver in self._served]
        if not mine:
            return None
        while True:
            pod = await self._made(mine)
            if await self._prepared(pod):
                return pod

    async def refused(self, wanted: Wanted) -> None:
        """A pod with a device that another one has does not start, and is deleted."""
        if wanted.driver in self._served:
            pod = await self._made([wanted])
            (error,) = (await self._asked(pod, "prepare", repeat=True)).values()
            assert "is still prepared for claim" in error
            await self._delete(pod)
            await self.end(pod)

    async def end(self, pod: Pod | None) -> None:
        """Nothing of the pod is left."""
        if pod is None:
            return
        for claim in pod.claims:
            self.held.pop(claim.metadata.uid, None)
        while any((await self._asked(pod, "unprepare", repeat=True)).values()):  # noqa: ASYNC110 - as the kubelet does
            await asyncio.sleep(10)
        entries = self.entries()
        assert not [claim.metadata.name for claim in pod.claims if claim.metadata.uid in entries]

    async def lose(self, pod: Pod | None) -> None:
        """The pod's claims go before it ends, and the controller asks for the node's receipts."""
        if pod is None:
            return
        await self._delete(pod)
        for wanted, claim in zip(pod.wanted, pod.claims, strict=True):
            meta = claim.metadata
            spec = {
                "claim": {"namespace": "team", "name": meta.name, "uid": meta.uid},
                "holdingUid": meta.uid,
                "nodeName": "n1",
                "driverName": wanted.driver,
                "allocation": {},
            }
            body = {"metadata": {"name": meta.name}, "spec": spec, "status": {"allocationCleared": True}}
            await self.machine.client.create(CLAIM_RELEASES, body)

    async def abandon(self, *wanted: Wanted, at: str) -> None:
        """A pod for whose claims nobody asks again after a call, prepare or unprepare, heard or not."""
        pod = await self._made(wanted)
        if at == "unprepare":
            await self._asked(pod, "prepare", repeat=True)
        with contextlib.suppress(Killed):
            await self._asked(pod, at, repeat=False)
        await self._delete(pod)

    async def inherit(self, wanted: Wanted) -> Pod:
        """A pod for which a plugin of version 1 prepared a device, before the first start of this one."""
        pod = await self._made([wanted])
        write_version_1(Folder(self.machine.state(wanted.driver)), *(_version_1(c, wanted) for c in pod.claims))
        await self.machine.plugin()
        self._hold(pod)
        return pod

    async def owed(self) -> int:
        """How many receipts the controller waits for, when the plugin has done what it could."""
        await self.machine.settle()
        return len((await self.machine.client.list(CLAIM_RELEASES)).items)

    async def restart_machine(self, **losses: Any) -> None:
        """No container is left; the kubelet starts its pods anew, and has their claims prepared again."""
        await self.machine.restart(**losses)
        await self._recovered()

    async def _recovered(self) -> Plugin:
        """The plugin; if the machine came up again, when it has prepared again what runs."""
        plugin = await self.machine.plugin()
        while self._boot != self.machine.boot:
            self._boot = self.machine.boot
            pods, self.held = {id(pod): pod for pod in self.held.values()}, {}
            for pod in pods.values():
                while any((await self._asked(pod, "prepare", repeat=True)).values()):  # noqa: ASYNC110 - as the kubelet does
                    await asyncio.sleep(60)
                self._hold(pod)
            plugin = await self.machine.plugin()
        return plugin

    async def _made(self, wanted: Sequence[Wanted]) -> Pod:
        names = [f"c{next(self._numbers)}" for _ in wanted]
        client = self.machine.client
        claims = [await create_claim(client, n, w.status()) for n, w in zip(names, wanted, strict=True)]
        return Pod(wanted, claims)

    async def _prepared(self, pod: Pod) -> bool:
        """False if the plugin died meanwhile, and the pod went."""
        try:
            errors = await self._asked(pod, "prepare", repeat=self._reaction is Reaction.REPEAT)
        except Killed:
            await self._delete(pod)
            if self._reaction is Reaction.FORGET:
                await self.restart_machine()
                await self.machine.settle()
                assert not self.entries().keys() & {claim.metadata.uid for claim in pod.claims}
            else:
                await self.end(pod)
            return False
        assert not any(errors.values()), errors
        self._hold(pod)
        return True

    def _hold(self, pod: Pod) -> None:
        self.held |= {claim.metadata.uid: pod for claim in pod.claims}
        self.judge()

    async def _asked(self, pod: Pod, what: str, *, repeat: bool) -> Mapping[str, str]:
        """The errors by claim, once every driver has answered. Raises Killed if it is not to be repeated."""
        while True:
            plugin = await self._recovered()
            calls = [
                _call(plugin.services[driver], what, pod.of(driver)) for driver in self._served if pod.of(driver)
            ]
            try:
                answers = await plugin.hear(asyncio.gather(*calls))
            except Killed:
                if not repeat:
                    raise
                continue
            return {uid: answer.error for told in answers for uid, answer in told.claims.items()}

    async def _delete(self, pod: Pod) -> None:
        for claim in pod.claims:
            await self.machine.client.delete(BUILTIN_CLAIMS, claim.metadata.name, "team")

    def entries(self) -> Mapping[str, CheckpointEntry]:
        """All that is in the checkpoints."""
        found: dict[str, CheckpointEntry] = {}
        for driver in self._served:
            if self.machine.state(driver).exists():
                found |= Checkpoint(Folder(self.machine.state(driver)), "n1").read()
        return found

    def files(self) -> Mapping[str, bytes]:
        """What the container runtime reads."""
        return {path.name: path.read_bytes() for path in self.machine.cdi.glob("*.json")}

    def effects(self) -> set[str]:
        """The UIDs of claims for which a folder exists."""
        place = self.machine.folder / "scratch"
        return {path.name for path in place.iterdir()} if place.exists() else set()

    def judge(self) -> None:
        """What must hold at every moment, a plugin's death included."""
        entries = self.entries()
        if self._boot == self.machine.boot:  # otherwise no container runs yet
            self._judge_held(entries)
        assert self.effects() <= entries.keys()
        holders = Counter(device.name for entry in entries.values() for device in entry.devices)
        whole = {e.devices[0].name for e in entries.values() if not e.handle.get("shared", True)}
        assert all(holders[name] <= (1 if name in whole else shares) for name, shares in SHARES.items())

    def _judge_held(self, entries: Mapping[str, CheckpointEntry]) -> None:
        files = self.files()
        for uid, pod in self.held.items():
            driver = next(d for d in self._served if uid in {claim.metadata.uid for claim in pod.of(d)})
            assert entries[uid].phase == "prepared"
            written = orjson.loads(files[f"parley.dev-{driver}-claim-{uid}.json"])
            assert written == specification(driver, entries[uid])
            assert driver != SCRATCH or uid in self.effects()

    def judge_at_rest(self) -> None:
        """What must hold when the plugin has nothing to do: what the kubelet holds is there, and nothing else."""
        self.judge()
        assert self.entries().keys() == self.held.keys()
        assert len(self.files()) == len(self.held)
        assert self.effects() == {uid for uid, e in self.entries().items() if e.devices[0].name == "scratch"}
        assert list(self.machine.folder.rglob(".parley-new-*")) == []


def _version_1(claim: BuiltinClaim, wanted: Wanted) -> dict[str, Any]:
    meta = claim.metadata
    return {
        "uid": meta.uid,
        "namespace": meta.namespace,
        "name": meta.name,
        "shared": wanted.shared,
        "results": [{"request": "exclusive", "pool": "n1", "device": wanted.device}],
        "devices": [{"name": wanted.device, "model": "a100", "shares": SHARES[wanted.device]}],
    }


async def _call(service: Any, what: str, claims: Sequence[BuiltinClaim]) -> Any:
    metas = [claim.metadata for claim in claims]
    named = [v1.Claim(namespace=meta.namespace, name=meta.name, uid=meta.uid) for meta in metas]
    if what == "prepare":
        return await service.NodePrepareResources(v1.NodePrepareResourcesRequest(claims=named), None)
    return await service.NodeUnprepareResources(v1.NodeUnprepareResourcesRequest(claims=named), None)
