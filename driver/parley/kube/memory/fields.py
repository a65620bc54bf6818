"""Paths to the fields of an object, and the differences between two objects as sets of such paths.

A path element is a field's name, or for an item of a list map the values of its key fields. Lists that are no
list maps are single values, as are empty objects. Facts: sigs.k8s.io/structured-merge-diff, fieldpath.
"""

from collections.abc import Iterator
from typing import Any

from parley.kube.memory.kinds import Fields, Json, Traits

Item = tuple[tuple[str, Any], ...]
"""An item's key fields and their values; of a set, the one pair of "" and the value itself."""

Path = tuple[str | Item, ...]


class _Missing:
    """The type of MISSING, which is not None because JSON has that too."""


MISSING = _Missing()

_OF_THE_SERVER = {
    ("apiVersion",),
    ("kind",),
    *(
        ("metadata", name)
        for name in (
            "name",
            "namespace",
            "generateName",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
        )
    ),
}
"""Fields that nobody owns."""


def item_of(value: Any, keys: Fields) -> Item:
    """What tells the value apart within its list."""
    if not keys:
        return (("", value),)
    return tuple((key, value[key]) for key in keys if key in value)


def list_keys(traits: Traits, fields: Fields, value: Any) -> Fields | None:
    """The key fields of a list map, empty for a set; None if the value is neither."""
    return traits.list_maps.get(fields) if isinstance(value, list) else None


def leaves(value: Any, traits: Traits, path: Path = (), fields: Fields = ()) -> Iterator[Path]:
    """The paths of all values, and those of the items of list maps."""
    keys = list_keys(traits, fields, value)
    if fields in _OF_THE_SERVER:
        return
    if isinstance(value, dict) and (value or not path) and fields not in traits.atomic:
        for name, child in value.items():
            yield from leaves(child, traits, (*path, name), (*fields, name))
    elif keys is not None and value:
        for child in value:
            inner = (*path, item_of(child, keys))
            yield inner
            if keys:
                yield from leaves(child, traits, inner, fields)
    else:
        yield path


def differing(old: Any, new: Any, traits: Traits, path: Path = (), fields: Fields = ()) -> Iterator[Path]:
    """The paths of what `new` has and `old` has not, or has otherwise."""
    if old is new or old == new:
        return
    keys = list_keys(traits, fields, new)
    if isinstance(new, dict) and isinstance(old, dict) and new and fields not in traits.atomic:
        for name, child in new.items():
            inner_fields = (*fields, name)
            if inner_fields not in _OF_THE_SERVER:
                yield from differing(old.get(name, MISSING), child, traits, (*path, name), inner_fields)
    elif keys and isinstance(old, list):
        known = {item_of(child, keys): child for child in old}
        for child in new:
            item = item_of(child, keys)
            if item not in known:
                yield from leaves([child], traits, path, fields)
            else:
                yield from differing(known[item], child, traits, (*path, item), fields)
    elif keys is not None and isinstance(old, list):
        yield from ((*path, item_of(child, keys)) for child in new if child not in old)
    else:
        yield from leaves(new, traits, path, fields)


def lookup(body: Any, path: Path) -> Any:
    """The value at the path, or MISSING."""
    for element in path:
        body = _child(body, element)
        if body is MISSING:
            return MISSING
    return body


def _child(body: Any, element: str | Item) -> Any:
    if isinstance(element, str):
        return body.get(element, MISSING) if isinstance(body, dict) else MISSING
    for child in body if isinstance(body, list) else ():
        if is_item(child, element):
            return child
    return MISSING


def is_item(child: Any, item: Item) -> bool:
    """Whether the list's child is the one that the path element names."""
    if item and item[0][0] == "":
        return bool(child == item[0][1])
    return isinstance(child, dict) and all(child.get(key) == value for key, value in item)


def without(body: Json, path: Path) -> Json:
    """The object without that value. What held nothing else goes too."""
    changed = _without(body, path)
    return changed if isinstance(changed, dict) else {}


def _without(body: Any, path: Path) -> Any:
    element, rest = path[0], path[1:]
    child = _child(body, element)
    if child is MISSING:
        return body
    kept = _without(child, rest) if rest else MISSING
    empty = kept is MISSING or kept in ({}, [])
    if isinstance(element, str):
        others = {name: value for name, value in body.items() if name != element}
        return others if empty else {**body, element: kept}
    if empty:
        return [value for value in body if not is_item(value, element)]
    return [kept if is_item(value, element) else value for value in body]


def spelled(path: Path) -> str:
    """The path as the server writes it: `.status.conditions[type="Ready"].status`."""
    return "".join(f".{element}" if isinstance(element, str) else _spelled_item(element) for element in path)


def _spelled_item(item: Item) -> str:
    if item and item[0][0] == "":
        return f'[="{item[0][1]}"]'
    return "[" + ",".join(f'{key}="{value}"' for key, value in item) + "]"
