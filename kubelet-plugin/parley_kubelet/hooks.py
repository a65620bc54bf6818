"""What the author of a node driver writes: a class that prepares claims, undoes that, and reports health.

    class Scratch(NodeDriver[ScratchHandle, ScratchSettings]):
        name = "scratch.example.com"
        handle = ScratchHandle
        settings = ScratchSettings

        async def prepare(self, claim: NodeClaim[ScratchHandle]) -> Prepared: ...
        async def unprepare(self, held: HeldClaim[ScratchHandle]) -> None: ...

Everything else is the plugin's: the kubelet's protocols, the checkpoint, CDI files, ResourceSlices, deadlines, and
refusing what is not meant for the driver. What the plugin promises:

- One call at a time for a claim, in this process and in a second one during a rolling update; different claims
  at the same time.
- Before `prepare` is called, the intention is on the disk. So a crash in the middle is followed by `prepare` again
  or by `unprepare`: both must be safe to repeat, and safe after a half-done `prepare`.
- What `prepare` returned counts until the machine restarts; then `prepare` is called again, for what the claim has
  then. If that is something else, `unprepare` is called first.
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
    """Base of a driver's own part of the configuration file: an unknown field is an error, it may be a typo."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class NoSettings(Settings):
    """For a driver without settings."""


H = TypeVar("H", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)


class Refused(Exception):
    """Raise it where a claim cannot be prepared; the message, which users read in the pod's events, should name
    the fault and the remedy. The kubelet tries again after a minute or so."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceName:
    """A device by the names of its pool and itself, as in ResourceSlices."""

    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class NodeClaim(Generic[H]):
    """A claim that is allocated on this node: its devices as the allocation names them, and the driver's handle,
    which is what the controller's side put into `Allocation.data`."""

    namespace: str
    name: str
    uid: str
    devices: tuple[DeviceName, ...]
    handle: H

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` did: what the claim's containers get, and what `unprepare` must know, as JSON."""

    edits: Edits = field(default_factory=Edits)
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldClaim(Generic[H]):
    """A claim that the driver holds something for. `state` is what `prepare` returned last, None if it never did:
    it was interrupted, and may have done a part of it."""

    claim: NodeClaim[H]
    state: Mapping[str, Any] | None


class DeviceCondition(Enum):
    """How a device is."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class Health:
    """How a device is, and why, as of `checked` (Unix time)."""

    device: DeviceName
    condition: DeviceCondition
    message: str = ""
    checked: float = field(default_factory=time.time, compare=False)


@dataclass(frozen=True, slots=True)
class Notice(Generic[H]):
    """Something about a claim that its users should know: they get it as an event. `reason` is a word of letters
    alone, which stays the same while the message changes."""

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
    """Base class of node drivers; `prepare` and `unprepare` are the ones to write.

    `name` is the driver's, as in `ResourceClass.driverName`; `handle` checks what the controller's side hands
    over, `settings` the part `drivers.<name>` of the configuration file. Made once, when the plugin starts.
    """

    name: str
    handle: type[H]
    settings: type[S]
    health_seconds: ClassVar[float] = 5.0
    """How often `health` is asked."""
    notice_seconds: ClassVar[float] = 15.0
    """How often `notices` is asked."""

    def __init__(self, node: str, settings: S) -> None:
        self.node = node
        self.configured = settings

    def devices(self) -> Sequence[Offer]:
        """The devices that the node publishes now, asked again every minute; may be none. Called in a thread: it
        may read files."""
        return ()

    def admit(self, claim: NodeClaim[H], rivals: Sequence[HeldClaim[H]]) -> None:
        """Raise Refused if the claim cannot be prepared beside `rivals`, the claims that hold one of its devices.

        Nothing is recorded or admitted in between. As written here, a device is for one claim only.
        """
        for rival in rivals:
            (device, *_) = sorted(set(claim.devices) & set(rival.claim.devices))
            raise Refused(
                f"claim {claim}: device={device.device!r} is still prepared for claim {rival.claim}:"
                " wait until the pods that use it are gone from this node"
            )

    async def prepare(self, claim: NodeClaim[H]) -> Prepared:
        """Make the claim ready. Raises Refused, or anything else, if it can't; `unprepare` or `prepare`
        follows."""
        raise NotImplementedError

    async def unprepare(self, held: HeldClaim[H]) -> None:
        """Undo it; the claim itself may be gone from the API. An error is tried again for ever."""
        raise NotImplementedError

    def keeps_room(self, claim: NodeClaim[H]) -> bool:  # noqa: ARG002 - of any claim
        """Whether something of the claim stays when it has been unprepared, so that `devices` offers less from
        then on: that is published before the kubelet reports the pod's end, and others get what the claim had."""
        return False

    async def left(self) -> Sequence[NodeClaim[H]]:
        """Claims of which there is something on this node by the driver's own records. So it is removed by
        `unprepare` also where the checkpoint was lost; left out, it stays."""
        return ()

    async def remove_data(self, claim: NodeClaim[H]) -> None:
        """Remove what pods left on this node for a named claim that has ended; others get what it held afterwards.

        Called for drivers whose controller's part says `leaves_data`, when nothing of the claim is prepared here,
        also if it never was, and as often as it takes: an error is tried again. It may take as long as it needs.
        Data of a generated claim is for `unprepare` to remove.
        """

    async def health(self, held: Sequence[HeldClaim[H]]) -> Sequence[Health]:
        """How all devices of this node are, those of `held` among them. Left out, nothing is reported to the
        kubelet."""
        raise NotImplementedError

    async def notices(self, held: Sequence[HeldClaim[H]]) -> Sequence[Notice[H]]:
        """What users of claims should know now, of `held` and others: an event on the claim and on the pods that
        may use it, when it begins, and while it lasts once an hour. Left out, there is nothing."""
        raise NotImplementedError

    def blocked(self) -> str:
        """What has kept calls of this driver from ending for a while, and the remedy; "" if nothing has. Must not
        block. The kubelet is told this of a call that is not done in time, and a metric shows it."""
        return ""

    def tells_notices(self) -> bool:
        """Whether `notices` is written."""
        return type(self).notices is not NodeDriver.notices

    def tells_health(self) -> bool:
        """Whether `health` is written."""
        return type(self).health is not NodeDriver.health
