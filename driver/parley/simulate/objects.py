"""Objects that are to be created in a simulated cluster, and what is wrong with the files that have them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.resources import Resource


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object to create. `source` is the file and the document in it; `namespace` is None for cluster kinds."""

    source: str
    resource: Resource[Any]
    namespace: str | None
    name: str
    body: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Kind and name, as in error messages."""
        return f"{self.resource.kind} {self.name}"


class BadManifests(Exception):
    """Raised when files could not be understood; `faults` has one sentence for each thing to change."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)
