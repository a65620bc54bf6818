"""Counts what each namespace holds of each class, and compares it with the class's `limits`. In memory, no
effects.

Claims count from the moment an allocation begins, so that two pods that are served at the same time can't both
pass, until nothing is held for them: a standalone driver may take a while to undo what it has begun. A claim
allocated before a limit was lowered stays; nothing new is allocated until the count is within the limit.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from types import MappingProxyType

from parley.api.models import Limit, ResourceClass
from parley.api.selectors import selects
from parley.api.wording import counted
from parley.negotiation.waiting import Topic

Labels = Mapping[str, str]


def topic(class_name: str, namespace: str) -> Topic:
    """The topic that is woken when a namespace holds less of a class."""
    return ("limit", class_name, namespace)


def counts_when_accepted(class_: ResourceClass, drivers: Container[str]) -> bool:
    """Whether an immediate claim of the class counts for its limits once it is accepted, allocated or not: its
    driver is none of these embedded ones, and allocates it by itself."""
    return bool(class_.limits) and class_.driver_name not in drivers


def _ignore_topic(_: Topic) -> None:
    """Nothing waits."""


def _unlabelled(_: str) -> Labels | None:
    """No namespace has labels."""
    return {}


class Limits:
    """Counts the units that each namespace's claims hold of each class, to compare them with the class's limits.

    `less` is called when a namespace holds less of a class, `labels` gives a namespace's labels, None as long as
    they are unknown.
    """

    def __init__(
        self,
        less: Callable[[Topic], None] = _ignore_topic,
        labels: Callable[[str], Labels | None] = _unlabelled,
    ) -> None:
        self._less = less
        self._labels = labels
        self._held: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        self._place: dict[str, tuple[str, str]] = {}

    def count(self, uid: str, class_name: str, namespace: str, units: int) -> None:
        """Count the claim with its units: it is allocated, or about to be. Idempotent."""
        before = self._held[place].get(uid, 0) if (place := self._place.get(uid)) is not None else 0
        self._remove(uid)
        self._held[class_name, namespace][uid] = units
        self._place[uid] = (class_name, namespace)
        if place is not None and (units < before or place != self._place[uid]):
            self._less(topic(*place))

    def forget(self, uid: str) -> None:
        """Stop counting the claim. Idempotent."""
        place = self._remove(uid)
        if place is not None:
            self._less(topic(*place))

    def _remove(self, uid: str) -> tuple[str, str] | None:
        place = self._place.pop(uid, None)
        if place is not None:
            del self._held[place][uid]
            if not self._held[place]:
                del self._held[place]
        return place

    def never_allow(self, class_: ResourceClass, namespace: str, wanted: Mapping[str, int]) -> bool:
        """Whether claims of the class that are `wanted` at a time are too many, even if the namespace has none."""
        nothing_held = Limits(labels=self._labels)
        return bool(nothing_held.excess(class_, namespace, wanted))

    def excess(
        self,
        class_: ResourceClass,
        namespace: str,
        wanted: Mapping[str, int],
        kept: Mapping[str, int] = MappingProxyType({}),
    ) -> str:
        """Why a pod's pending claims of the class would exceed a limit; "" if they would not.

        `wanted` has the units by the claims' UIDs, `kept` those of claims of nominated pods that come first.
        """
        labels = self._labels(namespace) if class_.selects_namespaces else {}
        if labels is None:
            return (
                f"the labels of namespace {namespace} are not known, and class {class_.metadata.name} has limits "
                "with a namespaceSelector: let the controller list and watch namespaces"
            )
        applies = limit_for(class_, namespace, labels)
        if applies is None:
            return ""
        index, limit = applies
        all_held = self._held.get((class_.metadata.name, namespace), {})
        held = [units for uid, units in all_held.items() if uid not in wanted]
        coming = [units for uid, units in kept.items() if uid not in all_held and uid not in wanted]
        counts = (
            ("claims", limit.claims, len(held), len(coming), len(wanted)),
            ("units", limit.units, sum(held), sum(coming), sum(wanted.values())),
        )
        for what, most, used, left, more in counts:
            if most is not None and more > most:
                units = counted(more, what.removesuffix("s"))
                return (
                    f"namespace {namespace} wants {units} of class {class_.metadata.name} at a time, which "
                    f"allows {_whom(limit)} {f'{most} in all: request less, or' if most else 'none:'} raise the "
                    f"class's limits[{index}].{what}"
                )
            if most is not None and used + left + more > most:
                kept_for = f", {left} of them kept for pods that others are evicted for" if left else ""
                return (
                    f"namespace {namespace} holds {used + left} of {most} {what} that class "
                    f"{class_.metadata.name} allows {_whom(limit)}{kept_for}, {more} more wanted: delete pods "
                    f"or claims that hold some, or raise the class's limits[{index}].{what}"
                )
        return ""


def limit_for(class_: ResourceClass, namespace: str, labels: Labels) -> tuple[int, Limit] | None:
    """The limit that applies to the namespace, with its index: the first that names or selects it, or else the
    first that names and selects none."""
    others: tuple[int, Limit] | None = None
    for index, limit in enumerate(class_.limits):
        selector = limit.namespace_selector
        if namespace in limit.namespaces or (selector is not None and selects(selector, labels)):
            return index, limit
        if others is None and selector is None and not limit.namespaces:
            others = index, limit
    return others


def _whom(limit: Limit) -> str:
    if limit.namespace_selector is None:
        return "it"
    return (
        f"each namespace with the labels {limit.namespace_selector}" if str(limit.namespace_selector) else "each"
    )
