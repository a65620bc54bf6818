"""Marks that models carry for their CRD: rules in CEL, and lists whose items have keys.

A mark stands in a field's `Annotated[...]` and adds its `x-kubernetes-...` entries to the field's JSON schema;
pydantic itself does not act on it. What becomes of that schema is decided in `parley.api.crd`.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

RULES = "x-kubernetes-validations"
MOMENT = "moment"
"""What `Moment` has for a format until the CRD is made."""


@dataclass(frozen=True)
class Rule:
    """A CEL rule that the API server checks; a rule that names `oldSelf` is checked when a value changes.

    `message` is what the user reads when it does not hold. `field` ("reservedFor") is the field of the object
    under the rule that the error is about, if it is not the object as a whole.
    """

    rule: str
    message: str
    field: str = ""

    def entry(self) -> JsonDict:
        """As `x-kubernetes-validations` has it."""
        place: JsonDict = {"fieldPath": f".{self.field}"} if self.field else {}
        return {"rule": self.rule, "message": self.message, **place}

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        return {**schema, RULES: [*schema.get(RULES, ()), self.entry()]}


@dataclass(frozen=True)
class ListMap:
    """Marks a list whose items are identified by `keys`: appliers of different items do not conflict."""

    keys: tuple[str, ...]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        listing: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(self.keys)}
        return {**handler(core), **listing}


class Moment:
    """Marks a text that the API server takes only if it is a time as in RFC 3339. It is not read as a time here:
    what the server takes for one is not always one for Python."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core), "format": MOMENT}


def rules(*entries: Rule) -> JsonDict:
    """`json_schema_extra` of a model whose objects are under these rules, wherever they stand."""
    return {RULES: [rule.entry() for rule in entries]}
