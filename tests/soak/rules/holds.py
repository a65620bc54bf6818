"""Which devices are taken, and why; a rule after every step.

    handed out twice   no device is held by two claims: by the claims' records, as long as a pod of theirs
                       lives, by what running pods were started with, by what nodes have prepared for pods
                       that were deleted by force, by what pods left there (`data`), and by the records of
                       claims that have a deadline, or that a standalone driver allocated

`Invariants` takes devices and releases them.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from tests.soak.cluster.observed import Step
from tests.soak.rules.mirrors import Device, Identity, Name

Source = tuple[str, Name | str]
"""The reason: "record" or "kept" and the name of a claim, "data" and the place where it is, or the UID of a pod
and the claim's name."""


@dataclass(slots=True)
class Hold:
    """One reason why a device is taken."""

    identity: Identity
    shared: bool


class DeviceHolds:
    """The reasons for which each device is held."""

    def __init__(self, fault: Callable[[str, str], None]) -> None:
        """`fault` takes the rule that is broken, and what was found."""
        self._fault = fault
        self.by_device: defaultdict[Device, dict[Source, Hold]] = defaultdict(dict)
        self._shares: dict[Device, int] = {}

    def slice_changed(self, step: Step) -> None:
        """Remember into how many shares each device can be split."""
        spec = step.change.last.body["spec"]
        for device in spec.get("devices") or ():
            shares = device.get("capacity", {}).get("slices", {}).get("value", 1)
            self._shares[spec["pool"]["name"], device["name"]] = int(shares)

    def take(self, device: Device, source: Source, hold: Hold) -> None:
        """From now on the device is held for that reason, too."""
        holds = self.by_device[device]
        holds[source] = hold
        claims = {other.identity for other in holds.values()}
        if len(claims) == 1:
            return
        if not all(other.shared for other in holds.values()):
            self._fault("handed out twice", f"{'/'.join(device)}: {_listed(holds)}")
        elif len(claims) > self._shares.get(device, 1):
            self._fault("handed out twice", f"{'/'.join(device)} has too few shares: {_listed(holds)}")

    def drop(self, device: Device, source: Source) -> None:
        """The device is not held for that reason any more."""
        self.by_device[device].pop(source, None)

    def drop_use(self, device: Device, pod: str, identity: Identity) -> None:
        """The pod of that UID does not use the device for that claim any more."""
        for source in [source for source, _ in self.by_device[device].items() if source[0] == pod]:
            if self.by_device[device][source].identity == identity:
                del self.by_device[device][source]


def _listed(holds: dict[Source, Hold]) -> str:
    return "; ".join(
        f"{_SOURCES.get(source[0], 'in use through')} {source[1][1] if source[0] != 'data' else source[1]}"
        f"{' (a share)' if hold.shared else ''}"
        for source, hold in holds.items()
    )


_SOURCES = {"record": "record of", "kept": "record of", "data": "data left for"}
