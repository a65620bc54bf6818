"""Publishes the devices of a driver on this node as ResourceSlices, and keeps them published.

The slices are written whenever those in the API differ from the present devices: because a device was added or
removed, another client changed or deleted a slice, or the kubelet deleted them, as it does at its own start.

The node has one pool of its own name. All its slices have one generation, which rises with each change: so a
reader knows during a change that the pool is incomplete. A driver without devices has a slice, too: it shows that
the driver serves on this node, and the kubelet removes it if the driver is gone for a while. A label says that all
nodes of the driver have slices. If the plugin's account may not set it, the slices are published without: this
node's devices are known, but nodes without slices are not known to lack the driver.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from parley.api.builtin import ResourceSlice, ResourceSliceSpec
from parley.api.names import NEGOTIATED_TAINT, NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.quantity import parse
from parley.api.resources import NODES, RESOURCE_SLICES
from parley.kube.backoff import Backoff
from parley.kube.client import ApiError, Client, Forbidden, NotFound, OutcomeUnknown
from parley.kube.informer import Informer, Selection
from parley_kubelet.hooks import Offer

DEVICES_PER_SLICE: Final = 64
"""The API server's limit for slices whose devices have taints (128 without)."""

RESYNC: Final = 60.0
"""Seconds between two discoveries of devices; no event reports a new device node."""

PAUSE: Final = 2.0
"""Seconds between two writes, at least, so that two plugins that disagree (a rolling update with another
configuration) do not overwrite each other in a loop."""

RETRIES: Final = Backoff(first=1.0, longest=60.0, jitter=0.3)

LABELS: Final = {PUBLISHED_BY_LABEL: NODE_PLUGIN}

LABEL_AGAIN: Final = 600.0
"""Seconds after which a refused label is tried again."""

log = structlog.get_logger(__name__)


def slice_specs(driver: str, node: str, devices: Sequence[Offer], generation: int) -> tuple[dict[str, Any], ...]:
    """The `spec` of each slice of the pool. Without devices there is one empty slice."""
    bodies = [_device(driver, device) for device in devices]
    chunks = [bodies[at : at + DEVICES_PER_SLICE] for at in range(0, len(bodies), DEVICES_PER_SLICE)] or [[]]
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(chunks)}
    return tuple({"driver": driver, "nodeName": node, "pool": pool, "devices": chunk} for chunk in chunks)


def _device(driver: str, offer: Offer) -> dict[str, Any]:
    return {
        "name": offer.name,
        "attributes": {name: _attribute(value) for name, value in offer.attributes.items()},
        "capacity": {name: {"value": value} for name, value in offer.capacity.items()},
        "taints": [{"key": NEGOTIATED_TAINT, "value": driver, "effect": "NoSchedule"}],
    }


def _attribute(value: str | int | bool) -> dict[str, str | int | bool]:
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


class DevicesUnknown(Exception):
    """Raised if the driver's `devices` failed, or returned devices that can't be published."""


@dataclass(frozen=True, slots=True)
class Published:
    """The number of slices and devices of this node that were last published."""

    slices: int = 0
    devices: int = 0


class SlicePublisher:
    """Keeps the slices of one driver and node.

    `devices` returns the devices as they are now.
    """

    def __init__(self, client: Client, *, driver: str, node: str, devices: Callable[[], Sequence[Offer]]) -> None:
        self._client = client
        self._driver = driver
        self._node = node
        self._devices = devices
        self._selector = f"spec.driver={driver},spec.nodeName={node}"
        self._written: frozenset[tuple[str, str]] = frozenset()
        self._wanted: object = None
        self._unlabelled_until = float("-inf")
        self._changed = asyncio.Event()
        self._devices_lock = asyncio.Lock()
        self._published_devices: Sequence[Offer] | None = None
        """The devices that were last published."""
        self._waiters: list[asyncio.Event] = []
        """Events to be set when the driver's devices as of now are published."""
        self.failures = 0
        """How many times the devices could not be published."""
        self.published = Published()

    async def run(self) -> None:
        """Keep the devices published until cancelled."""
        watch = Informer(
            self._client,
            RESOURCE_SLICES.read_through(_without_devices),
            Selection(field_selector=self._selector),
            on_change=lambda _old, _new: self._changed.set(),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(watch.run())
            group.create_task(self._keep())

    def recheck(self) -> None:
        """Publish soon: the devices may have changed."""
        self._changed.set()

    async def up_to_date(self) -> None:
        """Return when the driver's devices as of now are published; no API call if they are."""
        with suppress(DevicesUnknown):  # the attempt to publish them reports it
            if await self._current_devices() == self._published_devices:
                return
        self._waiters.append(shown := asyncio.Event())
        self._changed.set()
        await shown.wait()

    async def _keep(self) -> None:
        failures = 0
        while True:
            self._changed.clear()
            awaited = self._waiters.copy()
            try:
                await self.publish()
                failures = 0
                self._waiters = [one for one in self._waiters if one not in awaited]
                for one in awaited:
                    one.set()
            except (ApiError, OutcomeUnknown, DevicesUnknown) as error:
                failures += 1
                self.failures += 1
                log.warning(
                    "devices are not published",
                    driver=self._driver,
                    node=self._node,
                    failures=failures,
                    error=str(error),
                )
            await asyncio.sleep(RETRIES.delay(failures) if failures else PAUSE)
            if not failures:
                await self._change_or_resync()

    async def _change_or_resync(self) -> None:
        try:
            async with asyncio.timeout(RESYNC):
                await self._changed.wait()
        except TimeoutError:
            return

    async def publish(self) -> bool:
        """Write the slices if they are not up to date; returns whether they were written.

        Raises ApiError, OutcomeUnknown, and DevicesUnknown if the driver's `devices` fails."""
        now = asyncio.get_running_loop().time()
        if now < self._unlabelled_until:
            return await self._publish({})
        try:
            return await self._publish(LABELS)
        except Forbidden as error:
            refused = str(error)
        changed = await self._publish({})
        self._unlabelled_until = now + LABEL_AGAIN
        log.warning(
            "devices are published without the label by which nodes without the driver are known: grant the verb "
            "publish on resourceclaims.parley.dev/driver",
            driver=self._driver,
            node=self._node,
            label=PUBLISHED_BY_LABEL,
            error=refused,
        )
        return changed

    async def _publish(self, labels: Mapping[str, str]) -> bool:
        devices = await self._current_devices()
        listing = await self._client.list(RESOURCE_SLICES, field_selector=self._selector)
        present = sorted(listing.items, key=lambda item: item.metadata.name)
        if self._as_written(present, (devices, labels)) or self._as_wanted(present, devices, labels):
            self.published, self._published_devices = Published(len(present), len(devices)), devices
            return False
        generation = 1 + max((item.spec.pool.generation for item in present), default=0)
        written = await self._write(present, slice_specs(self._driver, self._node, devices, generation), labels)
        self._written, self._wanted = _versions(written), (devices, labels)
        self.published, self._published_devices = Published(len(written), len(devices)), devices
        log.info(
            "devices published", driver=self._driver, node=self._node, devices=len(devices), generation=generation
        )
        return True

    async def _current_devices(self) -> Sequence[Offer]:
        """The driver's devices as of now. One call at a time, so that a result is not older than its call."""
        try:
            async with self._devices_lock:
                devices = tuple(await asyncio.to_thread(self._devices))
            _as_shown(slice_specs(self._driver, self._node, devices, 1))
            return devices
        except Exception as error:
            raise DevicesUnknown(f"{type(error).__name__}: {error}") from error

    def _as_written(self, present: Sequence[ResourceSlice], wanted: object) -> bool:
        """Whether nothing changed since this plugin's last write. An API server that drops the taints (feature
        gate DRADeviceTaints) never shows what was written: comparing contents alone would write for ever."""
        return bool(present) and _versions(present) == self._written and wanted == self._wanted

    def _as_wanted(
        self, present: Sequence[ResourceSlice], devices: Sequence[Offer], labels: Mapping[str, str]
    ) -> bool:
        generation = max((item.spec.pool.generation for item in present), default=0)
        wanted = slice_specs(self._driver, self._node, devices, generation)
        shown = [_comparable(item.spec) for item in present]
        labelled = all(labels.items() <= item.metadata.labels.items() for item in present)
        return labelled and sorted(shown, key=repr) == sorted(_as_shown(wanted), key=repr)

    async def _write(
        self, present: Sequence[ResourceSlice], specs: Sequence[dict[str, Any]], labels: Mapping[str, str]
    ) -> tuple[ResourceSlice, ...]:
        written = []
        for item, spec in zip(present, specs, strict=False):
            metadata = {"resourceVersion": item.metadata.resource_version, "labels": labels}
            body = {"metadata": metadata, "spec": spec}
            written.append(await self._client.patch(RESOURCE_SLICES, item.metadata.name, body))
        for surplus in present[len(specs) :]:
            await self._remove(surplus)
        if missing := specs[len(present) :]:
            owner = await self._owner()
            for spec in missing:
                written.append(await self._client.create(RESOURCE_SLICES, self._body(spec, owner, labels)))
        return tuple(written)

    async def _remove(self, surplus: ResourceSlice) -> None:
        try:
            await self._client.delete(RESOURCE_SLICES, surplus.metadata.name, uid=surplus.metadata.uid)
        except NotFound:
            return

    async def _owner(self) -> dict[str, Any]:
        """The owner reference to the Node: its slices are deleted with it."""
        node = await self._client.get(NODES, self._node)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._node,
            "uid": node.metadata.uid,
            "controller": True,
        }

    def _body(self, spec: dict[str, Any], owner: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
        return {
            "apiVersion": RESOURCE_SLICES.api_version,
            "kind": RESOURCE_SLICES.kind,
            "metadata": {
                "generateName": f"{self._node}-{self._driver}-",
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": spec,
        }


def _without_devices(item: ResourceSlice) -> ResourceSlice:
    """The slice without its spec: the watch only has to show that it changed, `publish` lists the slices."""
    return msgspec.structs.replace(item, spec=ResourceSliceSpec())


def _versions(slices: Sequence[ResourceSlice]) -> frozenset[tuple[str, str]]:
    return frozenset((item.metadata.uid, item.metadata.resource_version) for item in slices)


def _as_shown(specs: Sequence[dict[str, Any]]) -> list[tuple[object, ...]]:
    """The specs as the API server will show them. Raises ValueError or TypeError if they are invalid."""
    return [_comparable(msgspec.convert(spec, ResourceSliceSpec)) for spec in specs]


def _comparable(spec: ResourceSliceSpec) -> tuple[object, ...]:
    """The spec with quantities as numbers: the API server writes 1024Mi as 1Gi."""
    devices = [
        (
            device.name,
            device.attributes,
            {name: parse(capacity.value) for name, capacity in device.capacity.items()},
            device.taints,
        )
        for device in spec.devices
    ]
    return spec.pool, devices
