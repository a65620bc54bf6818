"""The rule "wrote without lease", after every step: no controller and no standalone driver writes while its Lease
names another one, or nobody: who releases the Lease has waited for writes of its own that may come late."""

from collections.abc import Callable

from tests.soak.cluster.observed import Step


class Leases:
    """Follows the Lease of the controllers and that of the standalone drivers."""

    def __init__(self, fault: Callable[[str, str], None]) -> None:
        self._fault = fault
        self._holders: dict[str, str] = {}
        """The holder of each Lease, by what the names of its processes begin with."""

    def check(self, step: Step) -> None:
        """Check a write of anything but a Lease."""
        holder = self._holders.get(step.who.partition("-")[0])
        if holder is not None and step.who not in (holder, f"{holder} (late)"):
            self._fault("wrote without lease", f"{step.who} writes while {holder or 'nobody'} holds the lease")

    def lease_changed(self, step: Step) -> None:
        """Remember the holder."""
        holder = step.change.last.body["spec"].get("holderIdentity", "") if step.change.new else ""
        of = "driver" if step.change.last.meta["name"].startswith("parley-driver-") else "controller"
        self._holders[of] = holder
