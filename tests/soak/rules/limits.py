"""What must hold of the limits of classes, in worlds where they come, change and go, and of pools of tokens.

    over the limit   a claim is allocated only if it fits beside what the API shows to be allocated in the
                     namespace, by the limit or the pool that the class has, or has had since some minutes before

At rest `short_of` says which pods wait for a limit, and so with good reason: by the claims that the leader has in
its ledger, since what is released, or prepared on a node somewhere, may be in no record any more.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.soak.cluster.observed import Step
from tests.soak.kinds.claims import CLAIM_KINDS
from tests.soak.kinds.classes import ALL_TEMPLATE_KINDS
from tests.soak.kinds.names import NAMESPACE, TOKENS
from tests.soak.rules.kept_claims import NOWHERE, allocation, is_immediate, is_kept, said_lately, tokens
from tests.soak.rules.mirrors import Device, Identity, Json, is_parleys, read

from parley.control.holding import Holding
from parley.simulate.anti_affinity import Pod

ELSEWHERE = "other"
"""A namespace that nobody uses."""


@dataclass(frozen=True, slots=True)
class Most:
    """The most that the namespace may hold of a class; None for as much as there is."""

    claims: int | None
    units: int | None

    def admits(self, units: Iterable[int]) -> bool:
        """Whether claims with so many units each may be allocated together."""
        held = list(units)
        enough = self.claims is None or len(held) <= self.claims
        return enough and (self.units is None or sum(held) <= self.units)


def drawn(chance: Random) -> list[Json] | None:
    """What a class may say: nothing in two of five cases."""
    most = chance.choice([{"units": chance.randint(0, 4)}, {"claims": chance.randint(0, 3)}])
    found: list[list[Json] | None] = [
        None,
        None,
        [most],
        [{"namespaces": [ELSEWHERE], "units": 0}, most],
        [{"namespaces": [NAMESPACE], **most}, {"claims": 0}],
    ]
    return chance.choice(found)


def most(class_: Json) -> Most:
    """What the class allows the namespace: by the first limit that names it, else by the first that names none."""
    limits: list[Json] = class_.get("limits") or []
    own = [limit for limit in limits if NAMESPACE in (limit.get("namespaces") or ())]
    anybodys = [limit for limit in limits if not limit.get("namespaces")]
    chosen = next(iter([*own, *anybodys]), {})
    units = [chosen.get("units"), (class_.get("parameters") or {}).get("pool")]
    return Most(chosen.get("claims"), min((number for number in units if number is not None), default=None))


@dataclass(frozen=True, slots=True)
class Shown:
    """What an object shows to be allocated for the claim `identity`: for `users`, or `kept` without any."""

    identity: Identity
    class_name: str
    devices: tuple[Device, ...] = ()
    tokens: int = 0
    users: tuple[str, ...] = ()
    kept: bool = False

    @property
    def units(self) -> int:
        """How much of a limit that is."""
        return len(self.devices) + self.tokens


class ClassLimits:
    """Follows classes, pods and claims. `lives` says of a pod, by UID, whether it has not ended."""

    def __init__(self, fault: Callable[[str, str], None], lives: Callable[[str], bool]) -> None:
        self._fault = fault
        self._lives = lives
        self._said: defaultdict[str, list[tuple[float, Most]]] = defaultdict(list)
        self._kinds: dict[str, dict[str, str]] = {}
        """Of each pod, by UID, the class of each entry."""
        self._shown: dict[str, Shown] = {}
        """By the object's UID."""
        self._had: dict[Identity, tuple[tuple[Device, ...], int]] = {}
        """What a claim had last: one that is written again is not allocated anew, unless a controller had cleared
        all that showed it."""
        self._look: dict[tuple[str, str], Callable[[Step], None]] = {
            ("", "pods"): self._pod,
            ("resource.k8s.io", "resourceclaims"): self._mirror,
            ("parley.dev", "resourceclaims"): self._claim,
            ("parley.dev", "resourceclasses"): self._class,
        }

    def observe(self, step: Step) -> None:
        """Look at one change."""
        if (look := self._look.get((step.resource.group, step.resource.plural))) is not None:
            look(step)

    def _class(self, step: Step) -> None:
        body = step.change.new.body if step.change.new is not None else {}
        self._said[step.change.last.meta["name"]].append((step.seconds, most(body)))

    def _pod(self, step: Step) -> None:
        body = step.change.last.body
        self._kinds[body["metadata"]["uid"]] = dict(_generated(body["spec"]))

    def _mirror(self, step: Step) -> None:
        body, uid = step.change.last.body, step.change.last.meta["uid"]
        if not is_parleys(body):
            return
        record, before = read(body), self._shown.get(uid)
        identity = before.identity if before is not None else record.identity  # its owner may be dropped
        owner, entry = identity
        class_ = self._kinds.get(owner, {}).get(entry, "") if entry else _class_of_named(record.name[1])
        self._shows(step, uid, Shown(identity, class_, record.devices, record.tokens, record.users))

    def _claim(self, step: Step) -> None:
        body, meta = step.change.last.body, step.change.last.meta
        _, devices, _ = allocation(body) or NOWHERE
        users = tuple(user["uid"] for user in (body.get("status") or {}).get("reservedFor") or ())
        kept = is_kept(body) or is_immediate(body)
        shown = Shown((meta["uid"], ""), _class_of_named(meta["name"]), devices, tokens(body), users, kept)
        self._shows(step, meta["uid"], shown)

    def _shows(self, step: Step, uid: str, shown: Shown) -> None:
        before = self._shown.pop(uid, None)
        if step.change.new is None or not shown.units or not shown.class_name:
            if before is not None and step.who.startswith("controller") and not step.late:
                self._released(before.identity)
            return
        self._shown[uid] = shown
        allocated = shown.devices, shown.tokens
        if self._had.get(shown.identity) == allocated or not step.who.startswith("controller"):
            return
        self._had[shown.identity] = allocated
        held = {one.identity: one.units for one in self._shown.values() if self._counts(one, shown)}
        if not any(
            limit.admits(held.values()) for limit in said_lately(self._said[shown.class_name], step.seconds)
        ):
            what = f"{shown.units} more, of {sum(held.values())} units of {len(held)} claims"
            said = self._said[shown.class_name][-1][1]
            self._fault("over the limit", f"class {shown.class_name}: {what}, with {said}")

    def _released(self, identity: Identity) -> None:
        if all(one.identity != identity for one in self._shown.values()):
            self._had.pop(identity, None)

    def _counts(self, one: Shown, new: Shown) -> bool:
        """Whether it counts beside the new one. What nobody uses any more is being released."""
        return one.class_name == new.class_name and (one.kept or any(map(self._lives, one.users)))

    def short_of(self, pod: Pod, holdings: Iterable[Holding], claims: Collection[str]) -> str:
        """The class of which there is nothing left for the pod; "" if it finds enough of each.

        `claims` are the UIDs of those that there are: one that was forced away may be held still, as another claim
        needs it, and the one that has its name now is to be allocated.
        """
        held = list(holdings)
        own = [one for one in held if pod.metadata.uid in one.pods]
        wanted: defaultdict[str, list[int]] = defaultdict(list)
        for class_, units in _wanted(pod, own, [one for one in held if one.uid in claims]):
            wanted[class_].append(units)
        return next((class_ for class_, units in wanted.items() if not self._admits(class_, units, held)), "")

    def has_room_for(self, claim: str, holdings: Iterable[Holding]) -> bool:
        """Whether the named claim may be allocated."""
        class_, units = _class_and_units(CLAIM_KINDS[claim])
        return self._admits(class_, [units], holdings)

    def _admits(self, class_: str, wanted: Iterable[int], holdings: Iterable[Holding]) -> bool:
        held = (_units(one) for one in holdings if one.class_name == class_)
        said = self._said[class_]
        return not said or said[-1][1].admits([*held, *wanted])


def _units(holding: Holding) -> int:
    tokens: int = holding.allocation.data.get("count", 0) if holding.driver == TOKENS else 0
    return len(holding.allocation.devices) + tokens


def _wanted(pod: Pod, own: list[Holding], held: list[Holding]) -> Iterator[tuple[str, int]]:
    """Class and units of each claim of the pod that is not allocated."""
    generated = {one.entry for one in own if not one.named}
    named = {one.claim for one in held if one.named}
    for entry in pod.spec.resource_claims:
        template, name = entry.resource_claim_template_name or "", entry.resource_claim_name or ""
        if template in ALL_TEMPLATE_KINDS and entry.name not in generated:
            yield _class_and_units(ALL_TEMPLATE_KINDS[template])
        elif name in CLAIM_KINDS and name not in named:
            yield _class_and_units(CLAIM_KINDS[name])


def _class_and_units(kind: tuple[str, Mapping[str, Any]]) -> tuple[str, int]:
    class_, parameters = kind
    return class_, parameters.get("count", 1)


def _class_of_named(claim: str) -> str:
    return CLAIM_KINDS[claim][0] if claim in CLAIM_KINDS else ""


def _generated(spec: Json) -> Iterator[tuple[str, str]]:
    for entry in spec.get("resourceClaims") or ():
        template = entry.get("resourceClaimTemplateName", "")
        if template in ALL_TEMPLATE_KINDS:
            yield entry["name"], ALL_TEMPLATE_KINDS[template][0]
