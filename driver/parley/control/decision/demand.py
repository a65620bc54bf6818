"""The demand of pending claims, by driver: typed parameters, one request for each embedded driver."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from parley.control.claims.podclaims import PodClaim
from parley.negotiation.answers import Answer, Answers
from parley.negotiation.requests import Amounts
from parley.negotiation.rounds import Ask
from parley.negotiation.waiting import Topic
from parley.sdk import Driver, NoParameters, PodReference, Request, SeenPod
from parley.sdk.checks import check_count, check_published
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.parameters import RawClaim

Drivers = Mapping[str, EmbeddedDriver]
Requests = Mapping[str, Request[Any, Any]]
"""One request per driver, by the driver's name."""


@dataclass(frozen=True, slots=True)
class Reserving:
    """A claim that is about to be allocated, by UID and as "namespace/name", and the amounts that it reserves on
    its node, in thousandths by resource name."""

    uid: str
    claim: str
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Demand:
    """The pending claims of one pod, or one claim without a pod, by the drivers that have to allocate them.

    `requests` has one for each embedded driver, `standalone` the claims of standalone drivers, `drivers` the
    driver of each claim entry, `weights` the largest `scoreWeight` of each driver's classes. `embedded` are the
    embedded drivers by name. `reserving` has the claims that reserve room on their node.
    """

    pod: PodReference
    embedded: Drivers
    requests: Requests
    drivers: Mapping[str, str]
    weights: Mapping[str, int]
    standalone: tuple[PodClaim, ...] = ()
    reserving: tuple[Reserving, ...] = ()

    @property
    def equivalence_key(self) -> Hashable:
        """Equal for demands that drivers answer alike and that reserve the same, whatever the pod. Raises
        DriverFault."""
        inside = (_request_key(self.embedded[name], request) for name, request in self.requests.items())
        outside = ((claim.refers and self.pod.namespace, repr(claim.class_request)) for claim in self.standalone)
        reserved = sorted(sorted(one.amounts.items()) for one in self.reserving)
        return (*inside, *outside, repr(reserved))

    @property
    def standalone_question_key(self) -> frozenset[Hashable]:
        """The parts of a question to standalone drivers that void their answers when they change."""
        return frozenset(
            (claim.entry, claim.uid, self.drivers[claim.entry], repr(claim.class_request))
            for claim in self.standalone
        )

    @property
    def standalone_topics(self) -> tuple[Topic, ...]:
        """The topics that wake pods when one of its standalone drivers deallocates something."""
        return tuple(("driver", name) for name in sorted({self.drivers[claim.entry] for claim in self.standalone}))

    @property
    def standalone_equivalence_key(self) -> Hashable:
        """Equal for demands that the one standalone driver to be asked would answer alike. None if several are to
        be asked, or if a claim is named: only its driver knows what it holds."""
        names = {self.drivers[claim.entry] for claim in self.standalone}
        if len(names) != 1 or any(claim.claim is not None for claim in self.standalone):
            return None
        classes = (claim.class_.revision if claim.class_ is not None else None for claim in self.standalone)
        wanted = sorted(
            repr((class_, c.class_request)) for class_, c in zip(classes, self.standalone, strict=True)
        )
        return (self.pod.namespace, *names, *wanted)

    @property
    def packs(self) -> bool:
        """Whether one of the claims prefers nodes where little is left. A standalone driver's claim does only if
        its class says so: the driver scores nodes by itself."""
        return any(request.prefer == "Pack" for request in self.requests.values()) or any(
            claim.class_ is not None and claim.class_.preference == "Pack" for claim in self.standalone
        )

    @property
    def has_preferences(self) -> bool:
        """Whether an embedded driver prefers some nodes."""
        return any(self.embedded[name].has_preferences for name in self.requests)

    @property
    def needs_more_nodes(self) -> bool:
        """Whether drivers should be asked about more than the first few nodes: some nodes are preferred, and which
        is only known by asking."""
        return any(
            not self.embedded[name].reports_room
            and (self.embedded[name].has_preferences or request.prefer == "Pack")
            for name, request in self.requests.items()
        )

    def fullest(self) -> Iterator[str]:
        """The nodes to begin with if claims are packed, the fullest first, as embedded drivers keep them in order.
        A node may occur twice. Raises DriverFault."""
        return chain.from_iterable(self.embedded[name].fullest(request) for name, request in self.requests.items())

    def ask_function(self, excluded: Mapping[str, str]) -> Ask:
        """A function that asks the embedded drivers about nodes; it raises DriverFault. They are not asked about
        `excluded` nodes, which are answered as not viable, with the reason given by name."""

        def answers(nodes: Sequence[str]) -> Answers:
            left = [node for node in nodes if node not in excluded]
            found: dict[str, Answer] = {}
            for name, request in self.requests.items():
                found.update(self.embedded[name].viable(request, left))
            ruled_out = {node: excluded[node] for node in nodes if node in excluded}
            if not ruled_out:
                return found
            return {
                name: Answer(answer.viable, answer.alternatives, {**answer.reasons, **ruled_out})
                for name, answer in found.items()
            }

        return answers

    def units(self) -> dict[str, int]:
        """The units that each claim takes of its class's limit, by entry. Those of standalone drivers are left
        out, and take one unit each. Raises DriverFault."""
        return {
            claim.name: self.embedded[name].units(claim)
            for name, request in self.requests.items()
            for claim in request.claims
        }

    def records_units(self, claim: PodClaim) -> bool:
        """Whether the units that the claim counts for are recorded with its allocation."""
        driver = self.drivers[claim.entry]
        return must_record_units(self.embedded[driver] if driver in self.requests else None, refers=claim.refers)

    def scores(self, nodes: Sequence[str], standalone: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """The drivers' preferences (0 to 1) added up by node, each times its driver's weight.

        `standalone` has those of standalone drivers, by driver. Raises DriverFault.
        """
        own = {name: self.embedded[name].score(request, nodes) for name, request in self.requests.items()}
        total: defaultdict[str, float] = defaultdict(float)
        for name, preferences in {**own, **standalone}.items():
            for node, score in preferences.items():
                total[node] += self.weights[name] * score
        return dict(total)


def must_record_units(embedded: EmbeddedDriver | None, *, refers: bool) -> bool:
    """Whether the units that a claim counts for are recorded with its allocation, because the parameters that they
    depend on may have changed at the next restart: those of the class, or of an object to which claim or class
    `refers`. `embedded` is None for a standalone driver."""
    if refers or embedded is None:
        return refers
    driver = embedded.driver
    return type(driver).units is not Driver.units and driver.class_parameters is not NoParameters


def demand_of(
    drivers: Drivers,
    pod: PodReference,
    claims: Sequence[PodClaim],
    since: float = 0.0,
    seen: SeenPod | None = None,
) -> Demand:
    """The claims by driver, with typed parameters; drivers see `seen` of the pod. Objects that hold parameters
    count as they were at the time `since` (the event loop's clock) or later.

    Raises BadParameters, ParametersUnavailable, and DriverFault.
    """
    raw: defaultdict[str, list[RawClaim]] = defaultdict(list)
    weights: defaultdict[str, int] = defaultdict(int)
    for claim in claims:
        assert claim.class_ is not None
        driver = claim.class_.driver_name
        raw[driver].append(_raw(pod, claim))
        weights[driver] = max(weights[driver], claim.class_.score_weight)
    for driver, found in raw.items():
        check_count(driver, f"{pod.namespace}/{pod.name}", len(found))
    if any(claim.standalone for claim in claims):
        check_published(f"{pod.namespace}/{pod.name}", len(claims))
    requests = {
        name: drivers[name].request(pod, found, since, seen) for name, found in raw.items() if name in drivers
    }
    return Demand(
        pod=pod,
        embedded=drivers,
        requests=requests,
        drivers={claim.name: name for name, of_driver in raw.items() for claim in of_driver},
        weights=weights,
        standalone=tuple(claim for claim in claims if claim.standalone),
        reserving=_reserving(drivers, requests),
    )


def _reserving(drivers: Drivers, requests: Requests) -> tuple[Reserving, ...]:
    """Raises DriverFault."""
    return tuple(
        Reserving(claim.uid, f"{request.pod.namespace}/{claim.claim}", reserve.thousandths())
        for name, request in requests.items()
        if drivers[name].may_reserve
        for claim in request.claims
        if (reserve := drivers[name].reserves(claim)) is not None
    )


def _request_key(driver: EmbeddedDriver, request: Request[Any, Any]) -> Hashable:
    """Equal for requests that the driver answers alike."""
    claims = tuple((claim.class_name, repr(claim.parameters)) for claim in request.claims)
    seen = repr(request.seen) if request.seen is not None else ""
    return driver.name, claims, driver.alike(request), seen


def _raw(pod: PodReference, claim: PodClaim) -> RawClaim:
    assert claim.class_ is not None
    return RawClaim(
        name=claim.entry,
        uid=claim.uid,
        namespace=pod.namespace,
        claim=claim.name,
        class_name=claim.class_.metadata.name,
        parameters=claim.class_request.parameters if claim.class_request is not None else None,
        class_parameters=claim.class_.parameters,
        subject=claim.subject,
        reference=claim.class_request.reference if claim.class_request is not None else None,
        class_reference=claim.class_.parameters_ref,
        prefer=claim.class_.preference,
        generated=claim.claim is None,
    )
