"""Field types that several kinds share."""

from typing import Annotated, Any

from pydantic import Field

from parley.api.markers import Rule, rules
from parley.api.meta import Model
from parley.api.names import SUBDOMAIN

DriverName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern=f"^{SUBDOMAIN}$",
        description="The driver's name: a DNS subdomain, such as device.parley.dev.",
    ),
]
NodeName = Annotated[str, Field(min_length=1, max_length=253)]
Parameters = Annotated[
    dict[str, Any],
    Field(description="Parameters in the driver's schema; at most 10 KiB as JSON. The driver validates them."),
]
ShortText = Annotated[str, Field(max_length=253)]
LabelKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=317,
        pattern=rf"^({SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        description="The key of a label, such as example.com/run.",
    ),
]

EITHER = rules(
    Rule(
        "!has(self.parametersRef) || !has(self.parameters)",
        "parameters and parametersRef exclude each other: leave one of them out.",
        "parametersRef",
    )
)
"""Parameters are inline or in an object that is referred to, not both."""


class ParametersReference(Model):
    """An object that holds parameters: a ConfigMap, as YAML or JSON under the key `parameters`, or an object of a
    kind that the driver supports, in its `spec`."""

    api_group: Annotated[
        str,
        Field(max_length=253, pattern=f"^({SUBDOMAIN})?$", description="Its API group; empty for a ConfigMap."),
    ] = ""
    kind: Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Z][A-Za-z0-9]*$")]
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=f"^{SUBDOMAIN}$")]


MAX_DEADLINE = 31_536_000
"""The longest time until a deadline, in seconds: one year."""
