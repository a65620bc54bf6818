"""What must hold of allocations that need another one, in worlds where the driver says so (`Driver.uses`).

    freed under a view   what a living pod's view needs stays allocated as it is, unless somebody else than Parley
                         ends it

A view takes a device like any claim, and needs the named claim `SOURCE` to be allocated.
"""

from collections.abc import Callable, Iterator

from tests.soak.cluster.observed import Step
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.kept_claims import allocation
from tests.soak.rules.mirrors import Record

SOURCE = "common"
"""The claim that views need."""

VIEW = "view"
"""The class, and the template, of views."""


class Views:
    """Follows the records of named claims."""

    def __init__(self, invariants: Invariants, fault: Callable[[str, str], None]) -> None:
        self._invariants = invariants
        self._fault = fault

    def observe(self, step: Step) -> None:
        """Look at one change, after the invariants did."""
        old, new = step.change.old, step.change.new
        if (step.resource.group, step.resource.plural) != ("parley.dev", "resourceclaims"):
            return
        if not step.who.startswith("controller") or old is None or (before := allocation(old.body)) is None:
            return
        if new is None or allocation(new.body) != before:
            for view in self._living(old.meta["uid"]):
                self._fault("freed under a view", f"claim {old.meta['name']} is needed by {view.name[1]}")

    def _living(self, source: str) -> Iterator[Record]:
        """The views of that claim."""
        pods = self._invariants.pods
        for record in self._invariants.records.values():
            pod = pods.get(record.identity[0])
            if record.definite and record.uses == source and pod is not None and pod.alive:
                yield record
