"""The EndpointSlice through which a Service reaches the controller that leads.

All controllers are ready, since each can take over; a Service with a selector would therefore send a scheduler's
calls to any of them. So the Service has no selector, and the leader writes its own address into the Service's
only slice: once when it begins to lead, and again when somebody has changed or deleted the slice. It overwrites
the former leader's address. The slice is owned by the Service and garbage collected with it.
"""

import asyncio
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import structlog

from parley.api.builtin import EndpointSlice
from parley.api.resources import ENDPOINT_SLICES, SERVICES
from parley.kube.client import AlreadyExists, Client, Conflict, NotFound
from parley.kube.informer import Informer, Selection
from parley.kube.queue import Requeue, WorkQueue, run_workers

log = structlog.get_logger(__name__)

PORT_NAME = "extender"
"""The port's name, which has to be the same in the Service and in its slice."""

MANAGED_BY = "parley.dev"


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The address at which schedulers reach this process, and the Service for it."""

    service: str
    ip: str
    port: int

    @property
    def family(self) -> str:
        """The address family as EndpointSlices name it, IPv4 or IPv6. A slice's family can't be changed."""
        return f"IPv{ip_address(self.ip).version}"

    @property
    def slice_name(self) -> str:
        """The name of the EndpointSlice."""
        return f"{self.service}-leader"


class LeaderEndpoint:
    """Keeps the address of the leader, which is this process, in the Service's EndpointSlice."""

    def __init__(self, client: Client, namespace: str, address: ServiceAddress) -> None:
        self._client = client
        self._namespace = namespace
        self._address = address
        self._queue: WorkQueue[str] = WorkQueue()
        one = Selection(namespace, field_selector=f"metadata.name={address.slice_name}")
        self._slices = Informer(client, ENDPOINT_SLICES, one, on_change=self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._slices.run())
            await self._slices.synced.wait()
            self._queue.add(self._address.slice_name)
            tasks.create_task(run_workers(self._queue, self.sync, 1))

    def _changed(self, _: EndpointSlice | None, _new: EndpointSlice | None) -> None:
        self._queue.add(self._address.slice_name)

    async def sync(self, name: str) -> Requeue | None:
        """Write the slice unless it shows this process. Raises NotFound without the Service."""
        found = self._slices.get(self._namespace, name)
        if found is not None and self._shows_us(found):
            return None
        try:
            if found is not None and found.address_type != self._address.family:
                await self._delete(found)
                return None  # its deletion causes an event
            await self._write(name, found)
        except (AlreadyExists, Conflict):
            return Requeue()  # the cache was behind
        except NotFound:
            if found is None:
                raise  # the Service is missing, which is tried again
            return Requeue()  # it was deleted meanwhile
        log.info("the Service's endpoint is this process", service=f"{self._namespace}/{self._address.service}")
        return None

    async def _delete(self, found: EndpointSlice) -> None:
        """Delete the slice, whose address family can't be changed."""
        meta = found.metadata
        await self._client.delete(
            ENDPOINT_SLICES, meta.name, self._namespace, uid=meta.uid, resource_version=meta.resource_version
        )

    async def _write(self, name: str, found: EndpointSlice | None) -> None:
        if found is not None:
            body = {"metadata": {"resourceVersion": found.metadata.resource_version}, **self._content()}
            await self._client.patch(ENDPOINT_SLICES, name, body, self._namespace)
            return
        service = await self._client.get(SERVICES, self._address.service, self._namespace)
        owner = {"apiVersion": "v1", "kind": "Service", "name": self._address.service, "uid": service.metadata.uid}
        labels = {
            "kubernetes.io/service-name": self._address.service,
            "endpointslice.kubernetes.io/managed-by": MANAGED_BY,
        }
        metadata = {"name": name, "labels": labels, "ownerReferences": [owner]}
        body = {"metadata": metadata, "addressType": self._address.family, **self._content()}
        await self._client.create(ENDPOINT_SLICES, body, self._namespace)

    def _content(self) -> dict[str, Any]:
        return {
            "endpoints": [{"addresses": [self._address.ip], "conditions": {"ready": True}}],
            "ports": [{"name": PORT_NAME, "port": self._address.port, "protocol": "TCP"}],
        }

    def _shows_us(self, found: EndpointSlice) -> bool:
        """Whether it has this process's address and port, and nothing else."""
        endpoints = [(list(one.addresses), one.conditions.ready) for one in found.endpoints]
        ports = [(one.name, one.port) for one in found.ports]
        mine = [([self._address.ip], True)], [(PORT_NAME, self._address.port)]
        return found.address_type == self._address.family and (endpoints, ports) == mine
