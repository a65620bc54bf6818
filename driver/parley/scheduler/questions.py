"""What is asked of the drivers about one pod, and their answers and preferences together."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.builtin import Pod
from parley.control.limits import Limits
from parley.control.podclaims import PodClaim
from parley.negotiation.answers import Answer, Answers
from parley.negotiation.fit import needs_of
from parley.negotiation.rounds import Ask
from parley.sdk import PodReference, Request
from parley.sdk.checks import check_count
from parley.sdk.embedded import EmbeddedDriver, RawClaim


@dataclass(frozen=True, slots=True)
class Question:
    """One typed request per driver inside, the claims for drivers outside, and the driver of each claim entry."""

    requests: Mapping[str, Request[Any, Any]]
    drivers: Mapping[str, str]
    wanted: tuple[tuple[str, str, str], ...]
    weights: Mapping[str, int]
    outside: tuple[PodClaim, ...] = ()

    @property
    def wanted_outside(self) -> frozenset[Hashable]:
        """What is wanted of drivers outside, for each claim: a change of it voids the answers."""
        return frozenset(
            (claim.entry, claim.uid, self.drivers[claim.entry], repr(claim.asked)) for claim in self.outside
        )

    def signature(self, pod: Pod) -> Hashable:
        """Equal for pods that want the same of nodes and drivers: what can't serve one can't serve the other."""
        needs = needs_of(pod)
        return (
            needs.requests,
            needs.node_selector,
            repr(needs.affinity),
            repr(needs.tolerations),
            needs.node_name,
            self.wanted,
        )


def question(drivers: Mapping[str, EmbeddedDriver], pod: PodReference, claims: Sequence[PodClaim]) -> Question:
    """Claims by driver, with typed parameters. Raises BadParameters."""
    raw: defaultdict[str, list[RawClaim]] = defaultdict(list)
    weights: defaultdict[str, int] = defaultdict(int)
    for claim in claims:
        assert claim.class_ is not None
        driver = claim.class_.driver_name
        raw[driver].append(_raw(pod, claim))
        weights[driver] = max(weights[driver], claim.class_.score_weight)
    for driver, found in raw.items():
        check_count(driver, f"{pod.namespace}/{pod.name}", len(found))
    return Question(
        requests={name: drivers[name].request(pod, found) for name, found in raw.items() if name in drivers},
        drivers={claim.name: name for name, of_driver in raw.items() for claim in of_driver},
        weights=weights,
        outside=tuple(claim for claim in claims if claim.outside),
        wanted=tuple(
            (name, claim.class_name, repr(claim.parameters))
            for name, of_driver in raw.items()
            for claim in of_driver
        ),
    )


def _raw(pod: PodReference, claim: PodClaim) -> RawClaim:
    assert claim.class_ is not None
    return RawClaim(
        name=claim.entry,
        uid=claim.uid,
        namespace=pod.namespace,
        claim=claim.name,
        class_name=claim.class_.metadata.name,
        parameters=claim.asked.parameters if claim.asked is not None else None,
        class_parameters=claim.class_.parameters,
    )


def ask(drivers: Mapping[str, EmbeddedDriver], asked: Question, excluded: Mapping[str, str]) -> Ask:
    """A function that asks all drivers about nodes. On an excluded node no claim is viable any more."""

    def answers(nodes: Sequence[str]) -> Answers:
        left = [node for node in nodes if node not in excluded]
        found: dict[str, Answer] = {}
        for name, request in asked.requests.items():
            found.update(drivers[name].viable(request, left))
        ruled_out = {node: excluded[node] for node in nodes if node in excluded}
        if not ruled_out:
            return found
        return {
            name: Answer(answer.viable, answer.alternatives, {**answer.reasons, **ruled_out})
            for name, answer in found.items()
        }

    return answers


def units(drivers: Mapping[str, EmbeddedDriver], asked: Question) -> dict[str, int]:
    """How much of a limit in units each claim of a driver inside takes up, by entry; for others it is one."""
    return {
        claim.name: drivers[name].units(claim)
        for name, request in asked.requests.items()
        for claim in request.claims
    }


@dataclass(frozen=True, slots=True)
class Excess:
    """A class's limit that a pod's claims would exceed: `wanted` are the units of each, smallest first."""

    class_name: str
    wanted: tuple[int, ...]
    message: str


def excess(
    drivers: Mapping[str, EmbeddedDriver],
    limits: Limits,
    namespace: str,
    asked: Question,
    claims: Sequence[PodClaim],
) -> Excess | None:
    """What the pending claims would exceed if they were allocated now; None if the namespace may hold them."""
    counts = units(drivers, asked)
    for class_ in {c.class_.metadata.name: c.class_ for c in claims if c.class_ is not None}.values():
        wanted = {c.uid: counts.get(c.entry, 1) for c in claims if c.class_ is class_}
        if message := limits.excess(class_, namespace, wanted):
            return Excess(class_.metadata.name, tuple(sorted(wanted.values())), message)
    return None


def have_preferences(drivers: Mapping[str, EmbeddedDriver], asked: Question) -> bool:
    """Whether some driver prefers nodes to others, so that it is worth asking about more than the first few."""
    return any(drivers[name].has_preferences for name in asked.requests)


def scores(
    drivers: Mapping[str, EmbeddedDriver],
    asked: Question,
    nodes: Sequence[str],
    outside: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """The drivers' preferences (0 to 1) added up by node, each times the largest `scoreWeight` of its classes.

    `outside` has those of the drivers outside, by driver.
    """
    said = {name: drivers[name].score(request, nodes) for name, request in asked.requests.items()}
    total: defaultdict[str, float] = defaultdict(float)
    for name, preferences in {**said, **outside}.items():
        for node, score in preferences.items():
            total[node] += asked.weights[name] * score
    return dict(total)
