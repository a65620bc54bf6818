"""Prepares claims on this node and undoes it: from a claim's name to files on the disk.

    prepare     in the checkpoint? then done. Otherwise read the claim live, see that its devices exist here
                and are free, write the CDI specification, and the checkpoint last
    unprepare   remove the CDI specification, and the checkpoint's entry last; the claim itself is not asked

So a crash at any point leaves either nothing that counts or a prepared claim, and the kubelet's next call
finishes what is missing. One claim is handled by one call at a time; within the process and against a second
plugin on this node (a rolling update) the step from reading to writing the checkpoint is not interrupted.

What a claim was granted is read by `handle`, what a container gets is decided by `cdi`.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS
from parley.kube.client import ApiError, Client, NotFound, OutcomeUnknown
from parley_kubelet.cdi import Specifications
from parley_kubelet.checkpoint import Checkpoint, PreparedClaim, PreparedClaims, Result
from parley_kubelet.devices import NodeDevice
from parley_kubelet.durable import Folder
from parley_kubelet.handle import Granted, Refused, granted

READ_LIMIT = 20.0
"""Seconds to read a claim; the kubelet gives up a call after 45."""


@dataclass(frozen=True, slots=True)
class ClaimName:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Preparation:
    """The claims of one driver on one node.

    `devices` returns the node's devices as they are now.
    """

    def __init__(
        self,
        client: Client,
        *,
        driver: str,
        node: str,
        devices: Callable[[], Iterable[NodeDevice]],
        state: Folder,
        cdi: Folder,
    ) -> None:
        self._client = client
        self._driver = driver
        self._node = node
        self._devices = devices
        self._state = state
        self._checkpoint = Checkpoint(state)
        self._specifications = Specifications(cdi, driver)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def restore(self) -> PreparedClaims:
        """Bring the CDI folder in line with the checkpoint, and return what is prepared.

        Raises CheckpointError or OSError; then nothing may be prepared.
        """
        with self._state.locked():
            self._state.sweep()
            prepared = self._checkpoint.read()
            self._specifications.restore(prepared.values())
        return prepared

    async def prepare(self, claim: ClaimName) -> PreparedClaim:
        """Make the claim's devices ready. Raises Refused, NameTaken, CheckpointError or OSError."""
        async with self._lock(claim.uid):
            if (before := self._again(claim.uid)) is not None:
                return before
            found = granted(await self._read(claim), uid=claim.uid, driver=self._driver, node=self._node)
            with self._state.locked():
                prepared = self._checkpoint.read()
                entry = prepared.get(claim.uid) or self._entry(claim, found, prepared)
                self._specifications.write(entry)
                self._checkpoint.write({**prepared, claim.uid: entry})
            return entry

    async def unprepare(self, claim: ClaimName) -> None:
        """Give the claim's devices back; it is no error if they were. Raises CheckpointError or OSError."""
        async with self._lock(claim.uid):
            with self._state.locked():
                prepared = dict(self._checkpoint.read())
                self._specifications.remove(claim.uid)
                if prepared.pop(claim.uid, None) is not None:
                    self._checkpoint.write(prepared)

    def _lock(self, uid: str) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

    def _again(self, uid: str) -> PreparedClaim | None:
        with self._state.locked():
            entry = self._checkpoint.read().get(uid)
            if entry is not None:
                self._specifications.write(entry)
            return entry

    async def _read(self, claim: ClaimName) -> BuiltinClaim:
        try:
            async with asyncio.timeout(READ_LIMIT):
                return await self._client.get(BUILTIN_CLAIMS, claim.name, claim.namespace)
        except NotFound:
            raise Refused(
                f"claim {claim}: does not exist: delete the pod, so that it is made again with its claims"
            ) from None
        except (ApiError, OutcomeUnknown, TimeoutError) as error:
            why = str(error) or f"no answer within {READ_LIMIT:g} s"
            raise Refused(
                f"claim {claim}: cannot be read from the API server ({why}): the kubelet will try again"
            ) from None

    def _entry(self, claim: ClaimName, found: Granted, prepared: PreparedClaims) -> PreparedClaim:
        known = {device.name: device for device in self._devices()}
        for name in found.devices:
            if name not in known:
                raise Refused(
                    f"claim {claim}: device={name!r} is not a device of node {self._node!r}, which has"
                    f" {', '.join(known) or 'none'}: bring the device back, or delete the pod"
                )
            self._check_free(claim, known[name], found.shared, prepared)
        return PreparedClaim(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            shared=found.shared,
            results=tuple(Result(request=r.request, pool=r.pool, device=r.device) for r in found.results),
            devices=tuple(known[name] for name in found.devices),
        )

    def _check_free(self, claim: ClaimName, device: NodeDevice, shared: bool, prepared: PreparedClaims) -> None:
        holders = [other for other in prepared.values() if any(device.name == d.name for d in other.devices)]
        if not holders:
            return
        names = ", ".join(f"{holder.namespace}/{holder.name}" for holder in holders)
        if not shared or not all(holder.shared for holder in holders):
            raise Refused(
                f"claim {claim}: device={device.name!r} is still prepared for claim {names}:"
                " wait until the pods that use it are gone from this node"
            )
        if len(holders) >= device.shares:
            raise Refused(
                f"claim {claim}: device={device.name!r} has {device.shares} shares, and claims {names} have them"
                " all: wait until a pod that uses it is gone from this node"
            )
