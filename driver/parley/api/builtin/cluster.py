"""Nodes, and the kinds of which little is read: namespaces, leases, services, endpoints, events, config maps."""

from typing import Any

from parley.api.builtin.meta import Condition, ObjectMeta, Quantity, Struct


class Namespace(Struct, frozen=True):
    """Nothing but its metadata is read."""

    metadata: ObjectMeta = ObjectMeta()


class Taint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Struct, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(Struct, frozen=True):
    allocatable: dict[str, Quantity] = {}
    conditions: list[Condition] = []


class Node(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LeaseSpec(Struct, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    lease_transitions: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None


class Lease(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class Service(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class EndpointConditions(Struct, frozen=True):
    ready: bool | None = None


class Endpoint(Struct, frozen=True):
    addresses: list[str] = []
    conditions: EndpointConditions = EndpointConditions()


class EndpointPort(Struct, frozen=True):
    name: str = ""
    port: int | None = None


class EndpointSlice(Struct, frozen=True):
    """A `discovery.k8s.io/v1` EndpointSlice."""

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: list[Endpoint] = []
    ports: list[EndpointPort] = []


class Event(Struct, frozen=True):
    """An `events.k8s.io/v1` Event."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    note: str = ""
    type: str = ""
    regarding: Any = None


class ConfigMap(Struct, frozen=True):
    """A ConfigMap, whose values are texts."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}
