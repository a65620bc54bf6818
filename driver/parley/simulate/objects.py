"""An object that is to be created in a simulated cluster, and where it was read."""

from collections.abc import Mapping
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
