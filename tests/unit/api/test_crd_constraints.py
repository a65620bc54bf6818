"""A model either says in its CRD all that it checks, or there is no CRD: model, field and constraint are named."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from annotated_types import Ge, Gt, Lt, MultipleOf
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    StringConstraints,
    create_model,
    field_validator,
    model_validator,
)

from parley.api.crd import KINDS, UnsupportedSchema, structural_schema
from parley.api.markers import Moment


class Colour(Enum):
    RED = "red"


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    word: str = ""


class Tree(BaseModel):
    children: tuple["Tree", ...] = ()


class Configured(BaseModel):
    model_config = ConfigDict(str_max_length=9)

    word: str = ""


class Judged(BaseModel):
    word: str = ""

    @model_validator(mode="after")
    def judge(self) -> "Judged":
        return self


class Looked(BaseModel):
    word: str = ""

    @field_validator("word")
    @classmethod
    def look(cls, word: str) -> str:
        return word


def schema_of(annotation: Any) -> dict[str, Any]:
    made: dict[str, Any] = structural_schema(create_model("Thing", field=(annotation, ...)))["properties"]["field"]
    return made


SAID: list[tuple[Any, dict[str, Any]]] = [
    (
        Annotated[str, Field(min_length=1, max_length=3, pattern="^[a-z]$")],
        {"minLength": 1, "maxLength": 3, "pattern": "^[a-z]$"},
    ),
    (Annotated[int, Field(ge=1, le=3)], {"minimum": 1, "maximum": 3}),
    (
        Annotated[int, Gt(1), Lt(9)],
        {"minimum": 1, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": True},
    ),
    (Annotated[int, MultipleOf(5)], {"multipleOf": 5}),
    (Annotated[float, Ge(0)], {"type": "number", "minimum": 0}),
    (Annotated[list[str], Field(min_length=1, max_length=3)], {"minItems": 1, "maxItems": 3}),
    (Annotated[tuple[str, ...], Field(max_length=3)], {"maxItems": 3}),
    (Annotated[dict[str, int], Field(min_length=1, max_length=3)], {"minProperties": 1, "maxProperties": 3}),
    (Literal["a", "b"], {"enum": ["a", "b"]}),
    (Literal["a"], {"enum": ["a"]}),
    (str | None, {"type": "string"}),
    (Annotated[str, Moment()], {"format": "date-time"}),
    (Closed, {"properties": {"word": {"type": "string"}}}),
    (dict[str, Any], {"x-kubernetes-preserve-unknown-fields": True}),
    (
        dict[Annotated[str, Field(min_length=1, max_length=253)], int],
        {
            "x-kubernetes-validations": [
                {
                    "rule": "self.all(name, size(name) >= 1 && size(name) <= 253)",
                    "message": "each name must have 1 to 253 characters.",
                }
            ]
        },
    ),
    (
        dict[Annotated[str, Field(min_length=2)], int],
        {
            "x-kubernetes-validations": [
                {
                    "rule": "self.all(name, size(name) >= 2)",
                    "message": "each name must have at least 2 characters.",
                }
            ]
        },
    ),
]


@pytest.mark.parametrize(("annotation", "said"), SAID, ids=str)
def test_what_a_model_checks_is_in_its_schema(annotation: Any, said: dict[str, Any]) -> None:
    made = schema_of(annotation)

    assert {keyword: made[keyword] for keyword in said} == said


def unchanged(value: Any) -> Any:
    return value


NOT_SAID: list[tuple[Any, str]] = [
    (int | str, ".field has a 'union'"),
    (set[str], ".field has a 'set'"),
    (frozenset[str], ".field has a 'frozenset'"),
    (tuple[str, int], ".field has a 'tuple' of so many items"),
    (dict[int, str], ".field has keys that are a 'int'"),
    (dict[Literal["a"], str], ".field has keys that are a 'literal'"),
    (dict[Annotated[str, Field(pattern="^a")], str], ".field has 'patternProperties' in its JSON schema"),
    (datetime, ".field has a 'datetime'"),
    (UUID, ".field has a 'uuid'"),
    (Decimal, ".field has a 'decimal'"),
    (bytes, ".field has a 'bytes'"),
    (AnyUrl, ".field has a 'function-wrap'"),
    (Json[int], ".field has a 'json'"),
    (Colour, ".field has a 'enum'"),
    (Annotated[str, Field(pattern=r"^\d+$")], r".field has the pattern '^\\d+$'"),
    (Annotated[str, Field(pattern=r"(?i)a")], ".field has the pattern '(?i)a'"),
    (Annotated[str, StringConstraints(strip_whitespace=True)], ".field has 'strip_whitespace'"),
    (Annotated[str, StringConstraints(to_lower=True)], ".field has 'to_lower'"),
    (Annotated[str, AfterValidator(unchanged)], ".field has a 'function-after'"),
    (Annotated[str, BeforeValidator(unchanged)], ".field has a 'function-before'"),
    (Annotated[str, Field(json_schema_extra={"format": "email"})], ".field has the format 'email'"),
    (Annotated[str, Field(json_schema_extra={"contains": "a"})], ".field has 'contains' in its JSON schema"),
    (Configured, ".field has 'str_max_length' in its configuration"),
    (Judged, ".field has a 'function-after'"),
    (Looked, ".field.word has a 'function-after'"),
    (list[Annotated[str, AfterValidator(unchanged)]], ".field[] has a 'function-after'"),
    (Tree, ".field.children[] has a type that refers to itself"),
]


@pytest.mark.parametrize(("annotation", "what"), NOT_SAID, ids=[what for _, what in NOT_SAID])
def test_what_cannot_be_said_makes_no_definition(annotation: Any, what: str) -> None:
    with pytest.raises(UnsupportedSchema) as refused:
        schema_of(annotation)

    told = f"Thing{what}, which a CustomResourceDefinition made of it would not say: "
    assert str(refused.value).startswith(told)


def limited(schema: dict[str, Any], path: str, missing: Callable[[str], None]) -> None:
    kind, opaque = schema["type"], "x-kubernetes-preserve-unknown-fields" in schema
    if kind == "array" and "maxItems" not in schema:
        missing(f"{path} has no maxItems")
    if kind == "object" and "properties" not in schema and not opaque and "maxProperties" not in schema:
        missing(f"{path} has no maxProperties")
    if kind == "string" and not schema.keys() & {"maxLength", "enum", "format"}:
        missing(f"{path} has no maxLength")
    inner = {f".{name}": one for name, one in schema.get("properties", {}).items()}
    inner |= {
        step: schema[key] for step, key in (("[]", "items"), ("[*]", "additionalProperties")) if key in schema
    }
    for step, one in inner.items():
        limited(one, path + step, missing)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.plural)
def test_every_list_map_and_text_of_our_kinds_has_a_limit(kind: Any) -> None:
    """The API server budgets rules by these limits, and controllers keep the objects in memory."""
    schema, found = structural_schema(kind.resource.type), list[str]()
    for standalone in ("apiVersion", "kind", "metadata"):
        del schema["properties"][standalone]

    limited(schema, "", found.append)

    assert found == []
