"""Parses a YAML or JSON mapping that a user wrote into a string field, within bounds of size and depth. Pure.

Accepts only values that JSON can represent, with the rules of YAML 1.2: `yes`, `on` and dates are texts. Refuses
anchors, aliases and tags: a short text could expand to a huge value.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from parley.api.opaque import MAX_DEPTH

MAX_VALUES = 1000
"""The most YAML events in a document, one for each name, value and bracket: parsing one takes far more time than
reading its characters."""


_YAML_BREAKS = re.compile("[\x85\u2028\u2029]")
"""YAML folds these like line breaks; in JSON they are ordinary characters."""


class BadDocument(Exception):
    """Raised when a text is not an acceptable mapping. The message names the line and the problem, no value."""


def read_mapping(text: str) -> Mapping[str, Any]:
    """Parses the mapping. Raises BadDocument. The caller bounds the length of the text."""
    try:
        _check(text)
        value = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise BadDocument(f"is neither YAML nor JSON: line {line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise BadDocument("is neither YAML nor JSON") from None
    except OverflowError:
        raise BadDocument("has a number that JSON can't hold") from None
    if not isinstance(value, dict):
        raise BadDocument("is not a mapping: write `name: value` lines, or a JSON object")
    return value


def _check(text: str) -> None:
    """Raises BadDocument, before values are built, for a text that could expand or that JSON reads differently."""
    if match := _YAML_BREAKS.search(text):
        line = text.count("\n", 0, match.start()) + 1
        code = ord(match[0])
        raise BadDocument(f'has the character U+{code:04X} in line {line}: write "\\u{code:04x}"')
    depth = 0
    events: Iterator[Any] = yaml.parse(text, _Loader)
    for number, event in enumerate(events):
        if number > MAX_VALUES:
            raise BadDocument(f"has more than {MAX_VALUES} names and values: shorten it")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise BadDocument(f"has an anchor or alias in line {_line(event)}: write the values out")
        if getattr(event, "tag", None) is not None:
            raise BadDocument(f"has a tag in line {_line(event)}: leave it out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise BadDocument(f"nests deeper than {MAX_DEPTH} levels: make it flatter")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


_TEXT = "tag:yaml.org,2002:str"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A loader with JSON's types only; ten times faster where PyYAML was built with libyaml."""

    yaml_implicit_resolvers: Mapping[str, Any] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raises MarkedYAMLError for a name that is not a string, or is given twice."""
        names: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != _TEXT:
                raise yaml.MarkedYAMLError(problem="a name is not a string", problem_mark=key.start_mark)
            if key.value in names:
                raise yaml.MarkedYAMLError(problem="a name is given twice", problem_mark=key.start_mark)
            names.add(key.value)
        return dict(super().construct_mapping(node, deep))

    def construct_finite(self, node: yaml.ScalarNode) -> float:
        """Raises OverflowError for a number beyond the range of floats, which becomes infinite."""
        if not math.isfinite(value := float(node.value)):
            raise OverflowError
        return value


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_finite)


def _resolve(kind: str, pattern: str, beginnings: str) -> None:
    """Registers the type of plain scalars that match the pattern; each begins with one of `beginnings`."""
    first = [*beginnings] if kind != "null" else [*beginnings, ""]
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{pattern})$"), first)


_resolve("null", "~|null|Null|NULL|", "~nN")
_resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolve("int", "[-+]?(?:0|[1-9][0-9]*)", "-+0123456789")
_resolve("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.?[0-9]+)(?:[eE][-+]?[0-9]+)?", "-+0123456789.")
