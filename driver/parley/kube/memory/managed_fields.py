"""Field ownership, and server-side apply, which depends on it.

Every write makes its manager the owner of the fields that it changes. An applied configuration contains every
field that the manager wants: fields that it applied before and leaves out now are removed, unless another manager
owns them too. A field that another manager owns with a different value is a conflict, unless forced.
Source: sigs.k8s.io/structured-merge-diff/merge/update.go and apimachinery/pkg/util/managedfields (1.37).
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
    """A field manager. The same name with another operation or subresource is another manager."""

    name: str
    operation: str
    subresource: str


Owners = Mapping[Manager, frozenset[Path]]

UPDATE = "Update"
APPLY = "Apply"


def after_update(owners: Owners, manager: Manager, old: Json, new: Json, traits: Traits) -> Owners:
    """Ownership after a write that is not an apply: the manager is the only owner of what it changed."""
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
    """The object without the fields that the manager owned before and no manager owns now.

    First, fields are removed that would be left without the manager's and have no owner; then those of the
    manager's fields that this emptied.
    """
    held, named = _with_parents(before), _with_parents(leaves(merged, traits))
    owned = _with_parents(chain.from_iterable(owners.values()))
    others = _with_parents(leaves(without(merged, held), traits))
    left = without(merged, named - others - owned)
    return without(merged, (named - _with_parents(leaves(left, traits))) & held) or {}


def _overlaps(owners: Owners, manager: Manager, changed: set[Path]) -> dict[Manager, list[Path]]:
    """The paths that the manager would change and other managers own, by these managers."""
    found = {other: sorted(paths & changed, key=spelled) for other, paths in owners.items() if other != manager}
    return {other: paths for other, paths in found.items() if paths}


def _with_parents(paths: Iterable[Path]) -> set[Path]:
    """The paths and their parent fields. Items of lists are not added as parents."""
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
    """The items of both lists: wanted items in the applied order, each other item after the one that it
    followed."""
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
