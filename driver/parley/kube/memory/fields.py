"""Paths to the fields of an object, and the differences between two objects as sets of such paths.

A path element is a field's name or, for an item of a list map, the values of its key fields. Lists that are not
list maps are single values, as are empty objects.
Source: sigs.k8s.io/structured-merge-diff, fieldpath and typed (tofieldset.go, compare.go, remove.go).
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any

from parley.kube.memory.kinds import Fields, Traits

Item = tuple[tuple[str, Any], ...]
"""An item's key fields and their values; in a set, the single pair of "" and the value itself."""

Path = tuple[str | Item, ...]


class _Missing:
    """The type of MISSING. None won't do, because it stands for JSON's null."""


MISSING = _Missing()

_SERVER_FIELDS = {
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
"""Fields that no manager owns."""


def item_of(value: Any, keys: Fields) -> Item:
    """The value's key in its list. A value that is not an object with such keys is refused later."""
    if not keys:
        return (("", value),)
    if not isinstance(value, dict) or any(isinstance(value.get(key), list | dict) for key in keys):
        return (("", repr(value)),)
    return tuple((key, value[key]) for key in keys if key in value)


def list_keys(traits: Traits, fields: Fields, value: Any) -> Fields | None:
    """The key fields of a list map, empty for a set; None if the value is neither."""
    return traits.list_maps.get(fields) if isinstance(value, list) else None


def leaves(value: Any, traits: Traits, path: Path = (), fields: Fields = ()) -> Iterator[Path]:
    """The paths of all values and of all items of list maps; a list map without items has none."""
    keys = list_keys(traits, fields, value)
    if fields in _SERVER_FIELDS:
        return
    if isinstance(value, dict) and (value or not path) and fields not in traits.atomic:
        for name, child in value.items():
            yield from leaves(child, traits, (*path, name), (*fields, name))
    elif keys is not None:
        for child in value:
            inner = (*path, item_of(child, keys))
            yield inner
            if keys:
                yield from leaves(child, traits, inner, fields)
    else:
        yield path


def differing(old: Any, new: Any, traits: Traits) -> set[Path]:
    """The paths of what `new` adds to or changes in `old`. Of what is added, parents are included."""
    found: set[Path] = set()
    _differ(old, new, traits, (), (), found)
    return found


def _differ(old: Any, new: Any, traits: Traits, path: Path, fields: Fields, found: set[Path]) -> None:
    if old is new or old == new or fields in _SERVER_FIELDS:
        return
    if path and (old is MISSING or not _same_form(old, new, traits, fields)):
        found.add(path)
    keys = list_keys(traits, fields, new)
    if isinstance(new, dict) and fields not in traits.atomic:
        before = old if isinstance(old, dict) else {}
        for name, child in new.items():
            was = before.get(name, MISSING)
            if was is not child:  # most of an object is unchanged, and a call for each field would cost most
                _differ(was, child, traits, (*path, name), (*fields, name), found)
    elif keys is not None:
        known = {item_of(child, keys): child for child in old} if isinstance(old, list) else {}
        for child in new:
            item = item_of(child, keys)
            _differ(known.get(item, MISSING), child, traits, (*path, item), fields, found)


def _same_form(old: Any, new: Any, traits: Traits, fields: Fields) -> bool:
    """Whether both are objects or list maps, so that only their parts can differ."""
    if isinstance(new, dict):
        return isinstance(old, dict) and fields not in traits.atomic
    return isinstance(old, list) and list_keys(traits, fields, new) is not None


def is_item(child: Any, item: Item) -> bool:
    """Whether the path element identifies this item of a list."""
    if item and item[0][0] == "":
        return bool(child == item[0][1])
    return isinstance(child, dict) and all(child.get(key) == value for key, value in item)


def without(value: Any, paths: Set[Path]) -> Any:
    """The value without what is at the paths; None if nothing is left."""
    inner: dict[str | Item, set[Path]] = {}
    for path in paths:
        inner.setdefault(path[0], set()).add(path[1:])
    if isinstance(value, dict):
        kept = {
            name: _part(child, inner.get(name)) for name, child in value.items() if () not in inner.get(name, ())
        }
        return kept or None
    children = [(child, _named(child, inner)) for child in value]
    return [_part(child, named) for child, named in children if named is None or () not in named] or None


def _named(child: Any, inner: Mapping[str | Item, set[Path]]) -> set[Path] | None:
    return next(
        (paths for item, paths in inner.items() if not isinstance(item, str) and is_item(child, item)), None
    )


def _part(child: Any, paths: set[Path] | None) -> Any:
    return without(child, paths) if paths and isinstance(child, dict | list) else child


def spelled(path: Path) -> str:
    """The path as the server prints it: `.status.conditions[type="Ready"].status`."""
    return "".join(f".{element}" if isinstance(element, str) else _spelled_item(element) for element in path)


def _spelled_item(item: Item) -> str:
    if item and item[0][0] == "":
        return f'[="{item[0][1]}"]'
    return "[" + ",".join(f'{key}="{value}"' for key, value in item) + "]"
