"""The interface for authors of node drivers: a class that prepares and unprepares claims, and reports health.

    class Scratch(NodeDriver[ScratchHandle, ScratchSettings]):
        name = "scratch.example.com"
        handle = ScratchHandle
        settings = ScratchSettings

        async def prepare(self, claim: NodeClaim[ScratchHandle]) -> Prepared: ...
        async def unprepare(self, held: HeldClaim[ScratchHandle]) -> None: ...

The plugin does everything else: the kubelet's protocols, the checkpoint, CDI files, ResourceSlices, deadlines, and
refusing claims that are not the driver's. The plugin promises:

- Calls for one claim run one at a time, in this process and in a second one during a rolling update; calls for
  different claims run concurrently.
- Before `prepare` is called, the claim is recorded on the disk. So a crash in the middle is followed by `prepare`
  again or by `unprepare`: both must be safe to repeat, and safe after a half-done `prepare`.
- What `prepare` returned is valid until the machine restarts; then `prepare` is called again, for the claim's
  allocation at that time. If that is another one, `unprepare` is called first.
- A call that takes longer than the plugin's limit (40 s) is cancelled. The kubelet then gets an error; until the
  call has ended there is no other one for its claim.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from parley_kubelet.edits import Edits


class Settings(BaseModel):
    """Base class of a driver's part of the configuration file. Unknown fields are errors: they may be typos."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class NoSettings(Settings):
    """The settings of a driver that has none."""


H = TypeVar("H", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)


class Refused(Exception):
    """To be raised if a claim cannot be prepared. Users read the message in the pod's events: it should name the
    fault and the remedy. The kubelet tries again after a minute or so."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceName:
    """A device by its pool's name and its own, as in ResourceSlices."""

    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class NodeClaim(Generic[H]):
    """A claim that is allocated on this node: its devices as the allocation names them, and the driver's handle,
    which the driver in the controller put into `Allocation.data`."""

    namespace: str
    name: str
    uid: str
    devices: tuple[DeviceName, ...]
    handle: H

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of `prepare`: the edits of the claim's containers, and the state that `unprepare` needs, as
    JSON."""

    edits: Edits = field(default_factory=Edits)
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldClaim(Generic[H]):
    """A claim that is prepared, or was partly. `state` is what `prepare` returned last; None if it never returned:
    it was interrupted, and may have done a part of its work."""

    claim: NodeClaim[H]
    state: Mapping[str, Any] | None


class DeviceCondition(Enum):
    """The condition of a device."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class Health:
    """The condition of a device, and the reason, as of `checked` (Unix time)."""

    device: DeviceName
    condition: DeviceCondition
    message: str = ""
    checked: float = field(default_factory=time.time, compare=False)


@dataclass(frozen=True, slots=True)
class Notice(Generic[H]):
    """A message about a claim for its users, who get it as an event. `reason` is a word of letters alone, which
    stays the same while the message changes."""

    claim: NodeClaim[H]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A device that the node publishes: attributes and capacity (quantities) as in ResourceSlices."""

    name: str
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


class NodeDriver(Generic[H, S]):
    """Base class of node drivers; `prepare` and `unprepare` have to be written.

    `name` is the driver's, as in `ResourceClass.driverName`; `handle` validates the handle from the controller,
    `settings` the part `drivers.<name>` of the configuration file. One instance is made when the plugin starts.
    """

    name: str
    handle: type[H]
    settings: type[S]
    health_seconds: ClassVar[float] = 5.0
    """Seconds between two calls of `health`."""
    notice_seconds: ClassVar[float] = 15.0
    """Seconds between two calls of `notices`."""

    def __init__(self, node: str, settings: S) -> None:
        self.node = node
        self.configured = settings

    def devices(self) -> Sequence[Offer]:
        """The devices that the node publishes now; may be none. Called every minute, in a thread: it may read
        files."""
        return ()

    def admit(self, claim: NodeClaim[H], rivals: Sequence[HeldClaim[H]]) -> None:
        """Raise Refused if the claim cannot be prepared beside `rivals`, the claims that hold one of its devices.

        No other claim is admitted or recorded during the call. By default, a device is for one claim only.
        """
        for rival in rivals:
            (device, *_) = sorted(set(claim.devices) & set(rival.claim.devices))
            raise Refused(
                f"claim {claim}: device={device.device!r} is still prepared for claim {rival.claim}:"
                " wait until the pods that use it are gone from this node"
            )

    async def prepare(self, claim: NodeClaim[H]) -> Prepared:
        """Prepare the claim. Raises Refused, or any other exception, if that is not possible; `prepare` or
        `unprepare` follows."""
        raise NotImplementedError

    async def unprepare(self, held: HeldClaim[H]) -> None:
        """Undo `prepare`; the claim may no longer exist in the API. The call is repeated until it succeeds."""
        raise NotImplementedError

    def keeps_room(self, claim: NodeClaim[H]) -> bool:  # noqa: ARG002 - of any claim
        """Whether data of the claim stays after `unprepare`, so that `devices` offers less capacity: that is
        published before the kubelet reports the pod's end, and others get what the claim had."""
        return False

    async def left(self) -> Sequence[NodeClaim[H]]:
        """Claims that have something on this node by the driver's own records: `unprepare` removes it also if the
        checkpoint was lost. If this is not written, it stays then."""
        return ()

    async def remove_data(self, claim: NodeClaim[H]) -> None:
        """Remove the data that pods left on this node for a named claim that has ended; after that, others get
        what the claim held.

        Called for drivers whose part in the controller has `leaves_data`, when the claim is not prepared here,
        also if it never was. Repeated until it succeeds, and without a time limit. `unprepare` has to remove the
        data of generated claims.
        """

    async def health(self, held: Sequence[HeldClaim[H]]) -> Sequence[Health]:
        """The health of all devices of this node, including those of `held`. If this is not written, no health is
        reported to the kubelet."""
        raise NotImplementedError

    async def notices(self, held: Sequence[HeldClaim[H]]) -> Sequence[Notice[H]]:
        """The current notices for users about claims, `held` or not. Each becomes an event on the claim and on the
        pods that may use it, when it begins, and once an hour while it lasts. If this is not written, there are
        none."""
        raise NotImplementedError

    def blocked(self) -> str:
        """Why calls of this driver have not ended for a while, and the remedy; "" if they do end. Must not block.
        It is in the error that the kubelet gets for a call that is not done in time, and a metric shows it."""
        return ""

    def tells_notices(self) -> bool:
        """Whether the driver overrides `notices`."""
        return type(self).notices is not NodeDriver.notices

    def tells_health(self) -> bool:
        """Whether the driver overrides `health`."""
        return type(self).health is not NodeDriver.health
