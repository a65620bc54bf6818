"""What must hold of claims that stay allocated without users, by `whenUnused` of their class.

    freed while kept   a claim that a pod ran with stays allocated as it is for so long after that pod's end as its
                       class says, unless it is deleted, or starts over because its node is or was lately gone
    kept too long      at rest: a claim that no pod uses is not allocated after its deadline, or without one

`Invariants` checks that nobody else gets what such a claim holds, as long as it holds it. What counts is what the
class says when the controller sees the pod's end, as far as it has seen the class: so the shortest that the class
said since some minutes before.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from tests.soak.cluster.observed import Step
from tests.soak.rules.mirrors import Device, Json

T = TypeVar("T")
Allocation = tuple[tuple[str, ...], tuple[Device, ...], bool]
"""Nodes, devices, and whether they are shares."""

NOWHERE: Allocation = (), (), False

LATELY = 300.0
"""Seconds: what the class said before is known to every controller."""

FOR_EVER = float("inf")

SLACK = 1.0
"""A deadline is recorded in whole seconds."""


class KeptClaims:
    """Follows classes, named claims and the ends of pods that ran with them."""

    def __init__(self) -> None:
        self.slack = SLACK
        """Where wall clocks are set, so much earlier a deadline may seem to be over."""
        self.starting_over: Collection[str] = ()
        """The claims that are allocated anew if their node is gone (`Driver.stranded`), by name."""
        self._keeps: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        """By class: since when it says how many seconds."""
        self._ended: dict[str, tuple[float, str]] = {}
        """When the last pod that ran with a claim ended, and its name; by the claim's UID."""
        self._gone: dict[str, float] = {}
        """When nodes were last seen to be gone, or were there again."""

    def class_changed(self, step: Step) -> None:
        """Remember what the class says from now on."""
        body = step.change.new.body if step.change.new is not None else {}
        seconds = (body.get("whenUnused") or {}).get("keepSeconds", 0)
        self._keeps[step.change.last.meta["name"]].append((step.seconds, seconds))

    def node_changed(self, step: Step) -> None:
        """A claim on a node that is gone may start over elsewhere."""
        if step.change.new is None or step.change.old is None:
            self._gone[step.change.last.meta["name"]] = step.seconds if step.change.old is None else FOR_EVER

    def ended(self, pod: str, claims: Iterable[str], seconds: float) -> None:
        """A pod has ended that ran with claims of these UIDs."""
        self._ended.update(dict.fromkeys(claims, (seconds, pod)))

    def claim_changed(self, step: Step) -> Iterator[str]:
        """What is wrong with this change of a named claim."""
        old, new = step.change.old, step.change.new
        uid = step.change.last.meta["uid"]
        if new is None:
            self._ended.pop(uid, None)
            return
        if old is None or uid not in self._ended or old.meta.get("deletionTimestamp"):
            return
        before, after = allocation(old.body), allocation(new.body)
        if before is None or before == after:
            return
        ended, pod = self._ended.pop(uid)
        gone = any(step.seconds - self._gone.get(node, -FOR_EVER) < LATELY for node in before[0])
        if gone and new.meta["name"] in self.starting_over:
            return
        until = ended + self._kept_for(new.body["spec"]["resourceClassName"], ended)
        if step.seconds + self.slack < until:
            text = f"at {step.seconds:.0f}: pod {pod} ended at {ended:.0f}, and it is kept until {until:.0f}"
            yield f"claim {new.meta['name']} had {_listed(before)}, now {_listed(after)}, {text}"

    def _kept_for(self, class_: str, ended: float) -> float:
        return min(said_lately(self._keeps[class_], ended), default=0.0)


def said_lately(said: Sequence[tuple[float, T]], now: float) -> Iterator[T]:
    """What a class says, or has said since `LATELY`: each with the time since which it does, oldest first."""
    first = max((i for i, (since, _) in enumerate(said) if since <= now - LATELY), default=0)
    return (what for _, what in said[first:])


def allocation(claim: Json) -> Allocation | None:
    """By a Parley claim's own record."""
    found: Json | None = (claim.get("status") or {}).get("allocation")
    if not found:
        return None
    terms = (found.get("availableOnNodes") or {}).get("nodeSelectorTerms") or ()
    fields = [field for term in terms for field in term.get("matchFields") or ()]
    handles: list[Json] = found.get("handles") or []
    devices = [(d["pool"], d["device"]) for handle in handles for d in handle.get("devices") or ()]
    nodes = tuple(node for field in fields for node in field["values"])
    return nodes, tuple(devices), any((handle.get("data") or {}).get("shared") for handle in handles)


def tokens(claim: Json) -> int:
    """How many tokens are allocated, by a Parley claim's own record."""
    found = ((claim.get("status") or {}).get("allocation") or {}).get("handles") or ()
    data = [handle.get("data") or {} for handle in found]
    return sum(one.get("count", 0) for one in data if "pool" in one)


def is_kept(claim: Json) -> bool:
    """Whether the claim is allocated, with a deadline for when nobody uses it."""
    status = claim.get("status") or {}
    return bool(status.get("allocation") and (status.get("keptUntil") or is_immediate(claim)))


def has_failed(claim: Json) -> bool:
    """Whether no further pod may use it."""
    conditions = (claim.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)


def is_immediate(claim: Json) -> bool:
    """Whether it is allocated without a pod."""
    found: bool = claim["spec"].get("allocationMode") == "Immediate"
    return found


def kept_too_long(claims: Iterable[Json], now: datetime) -> Iterator[str]:
    """Which claims nobody uses, and nobody gave back at their deadline, or at once if they have none."""
    for body in claims:
        name, status = body["metadata"]["name"], body.get("status") or {}
        true = {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
        stands_in = "parley.dev/generated-for" in (body["metadata"].get("labels") or {})  # its pod is its owner
        has_users = status.get("reservedFor") or "Needed" in true or stands_in
        if not status.get("allocation") or is_immediate(body) or has_users:
            continue
        ends = body["metadata"].get("deletionTimestamp") or status.get("deallocationRequested")
        if "keptUntil" in status:
            until = datetime.fromisoformat(status["keptUntil"])
            if until + timedelta(seconds=SLACK) < now:
                yield f"claim {name}, until {status['keptUntil']}, and it is {now:%H:%M:%S}"
        elif not ends and "Releasing" not in true:
            yield f"claim {name}, without a deadline"


def _listed(found: Allocation | None) -> str:
    if found is None:
        return "nothing"
    nodes, devices, shared = found
    return f"{' '.join('/'.join(device) for device in devices)}{' (shares)' * shared} for {' '.join(nodes)}"
