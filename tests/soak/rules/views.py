"""What must hold of allocations that need another one, in worlds where the driver says so (`Driver.uses`).

    freed under a view   what a living pod's view needs stays allocated as it is, unless somebody else than Parley
                         ends it; also for a pod that was deleted by force, until its node has nothing prepared

A view takes a device like any claim, and needs the named claim `SOURCE` to be allocated.
"""

from collections.abc import Callable, Iterator

from tests.soak.cluster.observed import Step
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.kept_claims import allocation
from tests.soak.rules.mirrors import Identity

SOURCE = "common"
"""The claim that views need."""

VIEW = "view"
"""The class, and the template, of views."""


class Views:
    """Follows the records of named claims."""

    def __init__(self, invariants: Invariants, fault: Callable[[str, str], None]) -> None:
        self._invariants = invariants
        self._fault = fault
        self._needs: dict[Identity, tuple[str, str]] = {}
        """By view: its name, and the UID of the claim that it needs."""

    def observe(self, step: Step) -> None:
        """Look at one change, after the invariants did."""
        old, new = step.change.old, step.change.new
        kind = (step.resource.group, step.resource.plural)
        if kind == ("resource.k8s.io", "resourceclaims"):
            self._note(step)
        if kind != ("parley.dev", "resourceclaims"):
            return
        if not step.who.startswith("controller") or old is None or (before := allocation(old.body)) is None:
            return
        if new is None or allocation(new.body) != before:
            for view in self._living(old.meta["uid"]):
                self._fault("freed under a view", f"claim {old.meta['name']} is needed by {view}")

    def _note(self, step: Step) -> None:
        meta = step.change.last.meta
        record = self._invariants.records.get((meta["namespace"], meta["name"]))
        if record is not None and record.definite and record.uses:
            self._needs[record.identity] = record.name[1], record.uses

    def _living(self, source: str) -> Iterator[str]:
        """The names of the views of that claim."""
        rules = self._invariants
        shown = {record.identity for record in rules.records.values() if record.definite and record.uses == source}
        for identity, (name, needed) in self._needs.items():
            pod = rules.pods.get(identity[0])
            reserved = identity in shown and pod is not None and pod.alive
            forced = rules.forced.get(identity[0])
            if needed == source and (reserved or (forced is not None and identity in forced.uses)):
                yield name
