"""Merge patch (RFC 7386), JSON patch (RFC 6902) and strategic merge patch, as pure functions of JSON values.

None of them changes its arguments; what a patch leaves alone is shared with the original.
"""

from collections.abc import Callable, Sequence
from typing import Any

from parley.kube.memory.fields import is_item, item_of
from parley.kube.memory.kinds import Fields, Json, Traits
from parley.kube.memory.refusals import bad_request, unpatchable


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with the patch's fields, without those that are null in it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def strategic_patch(target: Any, patch: Any, traits: Traits, fields: Fields = ()) -> Any:
    """As a merge patch, but list maps are merged by their keys; `$patch: delete` removes an item.

    Raises BadRequest for other directives, which Parley has no use for.
    """
    if not isinstance(patch, dict):
        keys = traits.list_maps.get(fields) if isinstance(patch, list) else None
        return patch if keys is None else _strategic_list(target or [], patch, keys, traits, fields)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            raise bad_request(f"the directive {name!r} of a strategic merge patch is not supported here")
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = strategic_patch(merged.get(name), value, traits, (*fields, name))
    return merged


def _strategic_list(
    target: list[Any], patch: list[Any], keys: Fields, traits: Traits, fields: Fields
) -> list[Any]:
    merged = list(target)
    for change in patch:
        item = item_of(change, keys)
        place = next((index for index, child in enumerate(merged) if is_item(child, item)), None)
        if isinstance(change, dict) and change.get("$patch") == "delete":
            merged = [child for child in merged if not is_item(child, item)]
        elif place is None:
            merged.append(change)
        else:
            merged[place] = strategic_patch(merged[place], change, traits, fields)
    return merged


def json_patch(target: Json, operations: Sequence[Any]) -> Json:
    """The target after the operations. Raises BadRequest for a malformed patch, and Invalid if a path is not
    there or a test fails; then nothing is changed."""
    document: Any = target
    for operation in operations:
        document = _operate(document, operation)
    if not isinstance(document, dict):
        raise unpatchable()
    return document


def _operate(document: Any, operation: Any) -> Any:
    try:
        name, path = operation["op"], _pointer(operation["path"])
        if name == "remove":
            return _replace(document, path, _remove)
        if name in ("move", "copy"):
            source = _pointer(operation["from"])
            value = _read(document, source)
            document = _replace(document, source, _remove) if name == "move" else document
            return _replace(document, path, lambda parent, key: _add(parent, key, value))
        value = operation["value"]
    except (KeyError, TypeError) as error:
        raise bad_request(f"the JSON patch operation {operation!r} is not complete: {error}") from None
    if name == "test":
        if _read(document, path) != value:
            raise unpatchable()
        return document
    if name == "add":
        return _replace(document, path, lambda parent, key: _add(parent, key, value))
    if name == "replace":
        return _replace(document, path, lambda parent, key: _set(parent, key, value))
    raise bad_request(f"the JSON patch operation {name!r} does not exist")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise bad_request(f"the JSON pointer {text!r} does not start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _read(document: Any, path: list[str]) -> Any:
    for key in path:
        document = _child(document, key)
    return document


def _child(parent: Any, key: str) -> Any:
    if isinstance(parent, dict) and key in parent:
        return parent[key]
    if isinstance(parent, list):
        return parent[_index(key, len(parent) - 1)]
    raise unpatchable()


def _index(key: str, last: int) -> int:
    if not key.isdigit() or int(key) > last:
        raise unpatchable()
    return int(key)


def _replace(document: Any, path: list[str], change: Callable[[Any, str], Any]) -> Any:
    """The document with the parent of the path's end changed."""
    if not path:
        raise bad_request("a JSON patch of the whole document is not supported; name a field")
    if len(path) == 1:
        return change(document, path[0])
    return _set(document, path[0], _replace(_child(document, path[0]), path[1:], change))


def _set(parent: Any, key: str, value: Any) -> Any:
    if isinstance(parent, dict):
        return {**parent, key: value}
    place = _index(key, len(parent) - 1)
    return [*parent[:place], value, *parent[place + 1 :]]


def _add(parent: Any, key: str, value: Any) -> Any:
    if not isinstance(parent, list):
        if not isinstance(parent, dict):
            raise unpatchable()
        return {**parent, key: value}
    place = len(parent) if key == "-" else _index(key, len(parent))
    return [*parent[:place], value, *parent[place:]]


def _remove(parent: Any, key: str) -> Any:
    _child(parent, key)
    if isinstance(parent, dict):
        return {name: value for name, value in parent.items() if name != key}
    return [child for index, child in enumerate(parent) if index != int(key)]
