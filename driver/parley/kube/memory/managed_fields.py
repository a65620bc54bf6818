"""Who owns which field, and server-side apply, which depends on it.

A write of any kind makes its manager the owner of what it changes. Applying names everything that a manager
wants: what it wanted before and names no more is removed, unless another manager owns it too; a value that
another manager set otherwise is a conflict, unless forced.
Facts: sigs.k8s.io/structured-merge-diff/merge/update.go and apimachinery/pkg/util/managedfields (1.37).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from parley.api.resources import Resource
from parley.kube.errors import Conflict
from parley.kube.memory.fields import Item, Path, differing, item_of, leaves, list_keys, spelled, without
from parley.kube.memory.kinds import Fields, Json, Traits


class Manager(NamedTuple):
    """Two operations of one name are two managers, as are two subresources."""

    name: str
    operation: str
    subresource: str


Owners = Mapping[Manager, frozenset[Path]]

UPDATE = "Update"
APPLY = "Apply"


def after_update(owners: Owners, manager: Manager, old: Json, new: Json, traits: Traits) -> Owners:
    """Ownership after a write that is not an apply: the manager owns what it changed, alone."""
    changed = differing(old, new, traits)
    gone = differing(new, old, traits) - changed
    if not changed and not gone:
        return owners
    touched = changed | gone
    kept = {other: paths - touched for other, paths in owners.items()}
    kept[manager] = kept.get(manager, frozenset()) | changed
    return {other: paths for other, paths in kept.items() if paths}


def apply(
    resource: Resource[Any],
    traits: Traits,
    live: Json,
    owners: Owners,
    manager: Manager,
    config: Json,
    *,
    force: bool,
) -> tuple[Json, Owners]:
    """The object and its owners after the manager applied `config`. Raises Conflict, naming the other managers."""
    wanted = frozenset(leaves(config, traits))
    merged = _merge(live, config, traits)
    taken = _overlaps(owners, manager, differing(live, merged, traits))
    if taken and not force:
        raise _conflict(resource, taken)
    others = {
        other: paths - frozenset(taken.get(other, ())) for other, paths in owners.items() if other != manager
    }
    after = {other: paths for other, paths in {**others, manager: wanted}.items() if paths}
    before = owners.get(manager, frozenset())
    return (_pruned(merged, before, after, traits) if before - wanted else merged), after


def _pruned(merged: Json, before: frozenset[Path], owners: Owners, traits: Traits) -> Json:
    """The object without what the manager had before and nobody owns now.

    First goes what would be left without the manager and has no owner, then what of the manager's this emptied.
    """
    held, named = _with_parents(before), _with_parents(leaves(merged, traits))
    owned = _with_parents(chain.from_iterable(owners.values()))
    others = _with_parents(leaves(without(merged, held), traits))
    left = without(merged, named - others - owned)
    return without(merged, (named - _with_parents(leaves(left, traits))) & held) or {}


def _overlaps(owners: Owners, manager: Manager, changed: set[Path]) -> dict[Manager, list[Path]]:
    """What others own of that which the manager would change."""
    found = {other: sorted(paths & changed, key=spelled) for other, paths in owners.items() if other != manager}
    return {other: paths for other, paths in found.items() if paths}


def _with_parents(paths: Iterable[Path]) -> set[Path]:
    """The paths and those of the fields that they are in; an item of a list is there by itself only."""
    found = set()
    for path in paths:
        found.add(path)
        found.update(path[:length] for length in range(1, len(path)) if isinstance(path[length - 1], str))
    return found


def _merge(live: Any, config: Any, traits: Traits, fields: Fields = ()) -> Any:
    if isinstance(live, dict) and isinstance(config, dict) and fields not in traits.atomic:
        merged = dict(live)
        for name, value in config.items():
            known = live.get(name)
            merged[name] = value if known is None else _merge(known, value, traits, (*fields, name))
        return merged
    keys = list_keys(traits, fields, config)
    if keys is None or not isinstance(live, list) or not isinstance(config, list):
        return config
    return _merge_list(live, config, keys, traits, fields)


def _merge_list(live: list[Any], config: list[Any], keys: Fields, traits: Traits, fields: Fields) -> list[Any]:
    known = {item_of(child, keys): child for child in live}
    wanted = {item_of(child, keys): child for child in config}
    return [
        _merge(known[item], wanted[item], traits, fields)
        if item in known and item in wanted
        else wanted.get(item, known.get(item))
        for item in _order(list(known), list(wanted))
    ]


def _order(known: Sequence[Item], wanted: Sequence[Item]) -> Iterator[Item]:
    """The items of both lists: the wanted ones as applied, the others after those that they followed."""
    rest = deque(known)
    shared = deque(item for item in wanted if item in known)
    for item in wanted:
        while rest and not (shared and rest[0] == shared[0]):
            other = rest.popleft()
            if other not in wanted:
                yield other
        yield item
        if shared and shared[0] == item:
            shared.popleft()
            if rest:
                rest.popleft()
    yield from (item for item in rest if item not in wanted)


def _conflict(resource: Resource[Any], taken: Mapping[Manager, list[Path]]) -> Conflict:
    count = sum(map(len, taken.values()))
    parts = []
    for manager, paths in taken.items():
        names = [spelled(path) for path in paths]
        where = f": {names[0]}" if len(names) == 1 else ":\n" + "\n".join(f"- {name}" for name in names)
        parts.append(f"conflict{'s' if count > 1 else ''} with {_described(manager, resource)}{where}")
    message = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: " + "\n".join(parts)
    return Conflict(409, "Conflict", message)


def _described(manager: Manager, resource: Resource[Any]) -> str:
    subresource = f' with subresource "{manager.subresource}"' if manager.subresource else ""
    version = f" using {resource.api_version}" if manager.operation == UPDATE else ""
    return f'"{manager.name}"{subresource}{version}'
