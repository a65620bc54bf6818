"""Kubelets whose node plugins prepare no devices of other nodes, as the device driver's node part does not, that
report when a pod's devices are prepared and unprepared, and whose pods may take a while to begin and to end.

As a real one they ask nobody about a claim that is prepared already: the next pod gets what the first one got,
whatever the claim has by now (pkg/kubelet/cm/dra/manager.go, 1.37)."""

import asyncio
from collections.abc import Callable

from tests.soak.actions.priorities import ENDS_AFTER
from tests.soak.kinds.names import STANDALONE_DRIVER
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.mirrors import Device, are_standalone

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.resources import BUILTIN_CLAIMS
from parley.control.objects.mirror import allocated
from parley.control.objects.pod import is_terminal
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.cache import Key
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.kube.memory import MemoryServer
from parley.sdk import Allocation
from parley.simulate.kubelet import Kubelets
from parley.simulate.pod_claims import claim_names

INSTANT = 1e-6


class DeviceKubelets(Kubelets):
    """A pod starts where its devices are. `rules` hear which pods have devices, or have none any more, and when
    one gets other devices than its claim has. `pause` draws seconds that pass before a pod's devices are prepared,
    and again before it runs. Claims are read from the `server`: kubelets watch pods only."""

    def __init__(
        self,
        server: MemoryServer,
        client: Client,
        clock: Clock,
        rules: Invariants,
        unprepare_seconds: float,
        pause: Callable[[], float],
    ) -> None:
        super().__init__(client, clock, unprepare_seconds=unprepare_seconds)
        self._server = server
        self._rules = rules
        self._pause = pause
        self._prepares: dict[str, float] = {}
        """When the pod's devices are prepared, by its UID."""
        self._runs: dict[str, float] = {}
        """When it runs, once they are."""
        self._given: dict[tuple[str, str], tuple[Device, ...]] = {}
        """Devices by node and UID of the claim for which they were prepared."""
        self._exits: dict[str, float] = {}
        """When the containers of pods that are being deleted end, by the pod's UID."""

    def _unprepare(self, pod: str) -> None:
        super()._unprepare(pod)
        self._prepares.pop(pod, None)
        self._runs.pop(pod, None)
        self._rules.unprepared(pod)

    def machine_gone(self, node: str) -> None:
        """With all that was prepared on it; the pods' objects stay."""
        self.stop(node)
        for key in [key for key in self.prepared if key[0] == node]:
            for pod in self.prepared.pop(key):
                self._runs.pop(pod, None)

    def machine_there(self, node: str) -> None:
        """It is there, or another one is."""
        if node in self.stopped:
            self.start(node)

    async def _sync(self, key: Key) -> None:
        """A new machine finds pods that ran on the one before it."""
        pod = self._pods.get(*key)
        if pod is not None and pod.status.phase == "Running" and pod.spec.node_name not in self.stopped:
            uid = pod.metadata.uid
            if uid not in self._runs and not pod.metadata.deletion_timestamp and self._claims_usable(pod):
                self._prepare(pod)
        await super()._sync(key)

    def _read_claim(self, namespace: str, name: str) -> BuiltinClaim | None:
        stored = self._server.store.collection(BUILTIN_CLAIMS).objects.get((namespace, name))
        return BUILTIN_CLAIMS.decode(stored.data) if stored is not None else None

    def _claims_usable(self, pod: Pod) -> bool:
        return pod.metadata.uid in self._runs or super()._claims_usable(pod)

    def _usable(self, pod: Pod, name: str) -> bool:
        claim = self._read_claim(pod.metadata.namespace, name)
        if claim is not None and allocated(claim, TokensDriver.name) is not None:
            return super()._usable(pod, name)
        found = _devices_of(claim) if claim is not None else None
        there = found is not None and all(device.pool == pod.spec.node_name for device in found.devices)
        return there and super()._usable(pod, name)

    async def _start(self, pod: Pod) -> None:
        uid, now = pod.metadata.uid, asyncio.get_running_loop().time()
        left = self._prepares.setdefault(uid, now + self._pause()) - now
        if left <= INSTANT and uid not in self._runs:
            self._prepare(pod)
            self._runs[uid] = now + self._pause()
        left = max(left, self._runs.get(uid, 0.0) - now)
        if left > INSTANT:
            self._queue.add_after((pod.metadata.namespace, pod.metadata.name), left)
        else:
            await self._run(pod)

    def _prepare(self, pod: Pod) -> None:
        for name in claim_names(pod):
            if (claim := self._read_claim(pod.metadata.namespace, name)) is not None:
                self._give(pod, claim)
        super()._prepare(pod)
        self._runs[pod.metadata.uid] = 0.0
        self._rules.prepared(pod.metadata.uid)

    def _give(self, pod: Pod, claim: BuiltinClaim) -> None:
        found = _devices_of(claim)
        devices = tuple((device.pool, device.device) for device in found.devices) if found is not None else ()
        key = pod.spec.node_name, claim.metadata.uid
        given = self._given.get(key) if key in self.prepared else None
        if (
            given is not None and given != devices and not are_standalone(given)
        ):  # see docs/limits.md, forced deletion
            text = f"pod {pod.metadata.name} gets {given}, {claim.metadata.name} has {devices}"
            self._rules.fault("stale devices", text)
        self._given[key] = devices

    async def _remove(self, pod: Pod) -> None:
        meta, now = pod.metadata, asyncio.get_running_loop().time()
        takes = 0.0 if is_terminal(pod) else float(meta.annotations.get(ENDS_AFTER, 0))
        left = self._exits.setdefault(meta.uid, now + takes) - now
        if left > INSTANT and not is_terminal(pod):
            self._queue.add_after((meta.namespace, meta.name), left)
        else:
            del self._exits[meta.uid]
            await super()._remove(pod)


def _devices_of(claim: BuiltinClaim) -> Allocation | None:
    return allocated(claim, DeviceDriver.name) or allocated(claim, STANDALONE_DRIVER)
