"""Names that the objects of a soak have in common, and what completes their JSON."""

from typing import Any

from parley.api.resources import Resource

Json = dict[str, Any]
NAMESPACE = "default"
"""Where all claims and pods are."""

DRIVER = "device.parley.dev"
"""The device driver, embedded in the controller."""

TOKENS = "tokens.parley.dev"
"""The tokens driver, embedded too, in some worlds."""

STANDALONE_DRIVER = "far.example.com"
"""The standalone driver. The names of its devices begin with "far-"."""

PARAMETERS = "parameters"
"""The ConfigMap that some classes' claims name in `parametersRef`."""

ZONE = "topology.kubernetes.io/zone"
"""A node's label."""

ZONE_OF = {"a": "east", "b": "east", "c": "west", "d": "west"}
"""The zone of each node."""


def typed(resource: Resource[Any], body: Json) -> Json:
    """The body with its apiVersion and kind."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
