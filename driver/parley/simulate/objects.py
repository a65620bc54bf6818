"""Objects to be created in a simulated cluster, and the error for faulty files."""

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
    """Raised if files have faults; `faults` has one sentence for each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)
