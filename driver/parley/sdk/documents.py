"""Parses a YAML or JSON mapping that a user wrote into a string field, within bounds of size and depth. Pure.

What JSON can hold, as YAML 1.2 has it: `yes`, `on` and dates are texts. No anchors, aliases or tags: a short text
could stand for a huge value.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from parley.api.opaque import MAX_DEPTH

MAX_VALUES = 1000
"""In a document, names and brackets included: a value costs far more time than its characters."""


_YAML_BREAKS = re.compile("[\x85\u2028\u2029]")
"""YAML folds these as it does line breaks; in JSON they are characters as others."""


class BadDocument(Exception):
    """Raised when a text is no such mapping. The message names the line and the problem, no value."""


def read_mapping(text: str) -> Mapping[str, Any]:
    """The mapping. Raises BadDocument. The caller bounds the length of the text."""
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
    """Raises BadDocument before anything is made of what could be more than it looks, or reads in two ways."""
    if found := _YAML_BREAKS.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise BadDocument(
            f'has the character U+{ord(found[0]):04X} in line {line}: write "\\u{ord(found[0]):04x}"'
        )
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
    """Ten times faster where PyYAML was built with libyaml."""

    yaml_implicit_resolvers: Mapping[str, Any] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raises MarkedYAMLError for a name that is no text, or stands there twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != _TEXT:
                raise yaml.MarkedYAMLError(problem="a name is not a string", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem="a name is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return dict(super().construct_mapping(node, deep))

    def construct_finite(self, node: yaml.ScalarNode) -> float:
        """Raises OverflowError for what is no number any more."""
        if not math.isfinite(value := float(node.value)):
            raise OverflowError
        return value


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_finite)


def _resolve(kind: str, pattern: str, beginnings: str) -> None:
    """Plain words of that pattern, which begin with one of these characters or are empty, are of the kind."""
    first = [*beginnings] if kind != "null" else [*beginnings, ""]
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{pattern})$"), first)


_resolve("null", "~|null|Null|NULL|", "~nN")
_resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolve("int", "[-+]?(?:0|[1-9][0-9]*)", "-+0123456789")
_resolve("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.?[0-9]+)(?:[eE][-+]?[0-9]+)?", "-+0123456789.")
