"""Finds differences between an object in a cluster and the installed one. No I/O.

An API server fills in defaults, and leaves out what is empty: neither is a difference.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_DEFAULTS: Mapping[str, Any] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "scope": "*",
    "conversion": {"strategy": "None"},
}
"""What a server writes where a manifest is silent (admissionregistration.k8s.io/v1, apiextensions.k8s.io/v1)."""


def differences(expected: Any, found: Any, path: str) -> Iterator[str]:
    """The fields that are not as expected, as paths; for a missing or unexpected part only its own path."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in dict.fromkeys([*expected, *found]):
            inner = f"{path}.{name}" if path else name
            yield from differences(_given(expected, name), _given(found, name), inner)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif _plain(expected) != _plain(found):
        yield path


def _plain(value: Any) -> Any:
    """Text without line breaks: YAML parsers fold the lines of an expression in different ways."""
    return " ".join(value.split()) if isinstance(value, str) else value


def _given(body: Mapping[str, Any], name: str) -> Any:
    value = body.get(name)
    return _DEFAULTS.get(name) if value in (None, {}, [], "") else value


def missing_grants(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The permissions that a role should have and lacks, as "VERB RESOURCE" in words; more than expected is no
    difference."""
    has = set(_grants(found))
    return [_in_words(grant) for grant in _grants(expected) if not any(_covers(one, grant) for one in has)]


_Grant = tuple[str, str, str, str]
"""Group, resource, name ("" for all), verb."""


def _grants(role: Mapping[str, Any]) -> Iterator[_Grant]:
    for rule in role.get("rules") or ():
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    for verb in rule.get("verbs") or ():
                        yield group, resource, name, verb


def _covers(one: _Grant, other: _Grant) -> bool:
    group, resource, name, verb = one
    return (
        group in ("*", other[0])
        and resource in ("*", other[1])
        and name in ("", other[2])
        and verb in ("*", other[3])
    )


def _in_words(grant: _Grant) -> str:
    group, resource, name, verb = grant
    full = f"{resource}.{group}" if group else resource
    return f"{verb} {full}{f' {name}' if name else ''}"
