"""Checks of a driver's answers and of claims' parameters, before Parley acts on them.

The limits are those of Kubernetes' ResourceClaim validation (pkg/apis/resource/validation) and of Parley's
API. A driver that breaks one is at fault, not the user: the error names the driver, its value, and the limit.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core.core_schema import ErrorType

from parley.api.builtin import NodeSelector
from parley.api.models import MAX_DEADLINE, MAX_YIELDS
from parley.api.names import MAX_NAME
from parley.api.opaque import why_unreadable
from parley.api.wording import counted
from parley.negotiation.answers import Answer
from parley.negotiation.waiting import Topic
from parley.sdk.values import Parameters, Request, Reserve

MAX_CLAIMS = 128
"""The most claims of one driver in one pod, as many as a PodScheduling can hold. Kubernetes sets no such limit."""

MAX_ENTRIES = 256
"""The most claims in one pod, of all drivers."""

ANSWER_SECONDS = 30.0
"""How long a driver that does not answer at once may take: after that its pods wait with DriverNotAnswering."""

MAX_DEVICES = 32
MAX_ALTERNATIVES = 32
MAX_NODES = 128
MAX_RESERVED = 16
"""The most different resources that one claim reserves."""

MAX_USED = 32
"""The most other claims that one claim needs (`Driver.uses`)."""


MOST_PODS = 10_000
MOST_CAPACITY = 2**63 - 1

_MAX_FAULTS = 8
_MAX_SHOWN = 100
"""Characters of a name or value that a message about bad parameters repeats."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_WITHOUT_VALUES = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error"}
"""Types of faults whose message is pydantic's own. That of a driver's own validator may repeat the value."""


class DriverFault(Exception):
    """Raised when a driver broke its contract."""


class BadParameters(Exception):
    """Raised when parameters fail the driver's schema. The message names each field and its value.

    `topic` is the one that wakes waiting pods when the object with the parameters is read again; None if inline.
    """

    def __init__(self, message: str, topic: Topic | None = None) -> None:
        super().__init__(message)
        self.topic = topic


def fault_text(error: BaseException) -> str:
    """A driver's unexpected exception in one line, with its type: a KeyError's message is only the key."""
    kind, text = type(error).__name__, _text(error)
    return text if isinstance(error, DriverFault) and text else f"{kind}: {text}" if text else kind


def _text(error: BaseException) -> str:
    """The exception's message as valid Unicode: names of files and outputs of programs may hold other bytes.
    The `__str__` of a driver's own exception may fail."""
    try:
        text = str(error)
    except Exception as fault:
        return f"its message cannot be read: {type(fault).__name__}"
    return text.encode(errors="backslashreplace").decode()


def failure_text(error: Exception) -> str:
    """Why a driver could not allocate, in one line: the exception's message, if there is one."""
    text = _text(error)
    return text if text and not isinstance(error, KeyError) else fault_text(error)


def parse_parameters(
    schema: type[Parameters],
    raw: Mapping[str, Any] | None,
    whose: str,
    *,
    private: bool = False,
    version: str = "",
) -> Any:
    """The typed parameters. `whose` names their owner in the error: "claim team/a-gpu" or "class gpu".

    `private`: they come from an object that not every reader of the error may read, so it repeats no values.
    `version` is the schema's in words, if there are several.
    """
    if raw is not None and not isinstance(raw, Mapping):  # from a mirror that another client wrote
        raise BadParameters(f"parameters of {whose}: must be an object, not {type(raw).__name__}")
    if why := why_unreadable(raw):
        raise BadParameters(parameters_unreadable(whose, why))
    try:
        return schema.model_validate(dict(raw or {}))
    except ValidationError as error:
        details = error.errors()
        faults = "; ".join(_fault(detail, private=private) for detail in details[:_MAX_FAULTS])
        if len(details) > _MAX_FAULTS:
            faults += f"; and {len(details) - _MAX_FAULTS} more"
        known = ", ".join(sorted(str(f.alias or name) for name, f in schema.model_fields.items())) or "none"
        raise BadParameters(f"parameters of {whose}: {faults} (known parameters{version}: {known})") from None


@dataclass(frozen=True, slots=True)
class ParameterModels:
    """The models of a driver's parameters: one, or, if they have versions, one for each, the oldest first."""

    model: type[Parameters]
    versions: Mapping[str, type[Parameters]]

    def parse(self, raw: Mapping[str, Any] | None, whose: str, *, private: bool = False) -> Any:
        """`parse_parameters` with the model of the parameters' `apiVersion`, converted to the newest version."""
        if not self.versions or not isinstance(raw, Mapping | None):
            return parse_parameters(self.model, raw, whose, private=private)
        given = raw or {}
        version = given.get("apiVersion", next(iter(self.versions)))
        model = self.versions.get(version) if isinstance(version, str) else None
        if model is None:
            named = "apiVersion" if private else f"apiVersion={_shortened(repr(version))}"
            known = " or ".join(self.versions)
            raise BadParameters(f"parameters of {whose}: {named} is not supported: write {known}")
        if given.get("kind", model.__name__) != model.__name__:
            named = "kind" if private else f"kind={_shortened(repr(given['kind']))}"
            raise BadParameters(f"parameters of {whose}: {named} is not that of {version}: write {model.__name__}")
        rest = {name: value for name, value in given.items() if name not in ("apiVersion", "kind")}
        named = f" of version {version}" if len(self.versions) > 1 else ""
        named += ", as no apiVersion is given" if named and "apiVersion" not in given else ""
        parsed: Parameters = parse_parameters(model, rest, whose, private=private, version=named)
        return parsed.newest()


def check_count(driver: str, pod: str, claims: int) -> None:
    """Raises BadParameters if the pod has more than `MAX_CLAIMS` claims of the driver."""
    if claims > MAX_CLAIMS:
        raise BadParameters(
            f"pod {pod} has {claims} claims of driver {driver}, at most {MAX_CLAIMS} are allowed: {_FEWER_CLAIMS}"
        )


def check_published(pod: str, claims: int) -> None:
    """Raises BadParameters if the pod has more than `MAX_CLAIMS` pending claims, and some are of a standalone
    driver: question and answers are in one PodScheduling."""
    if claims > MAX_CLAIMS:
        raise BadParameters(
            f"pod {pod} has {claims} claims, at most {MAX_CLAIMS} are allowed if one of them is of a standalone "
            f"driver: {_FEWER_CLAIMS}"
        )


def too_many_claims(pod: str, claims: int) -> str:
    """The message about a pod with more than `MAX_ENTRIES` claims."""
    return f"pod {pod} has {claims} claims, at most {MAX_ENTRIES} are allowed: {_FEWER_CLAIMS}"


def answer_too_large(driver: str, claims: int, nodes: int) -> str:
    """The message about an answer that the API server has no room for."""
    about = f"{counted(claims, 'claim')} and {counted(nodes, 'node')}"
    too_large = "makes the PodScheduling larger than the API server allows"
    return f"the answer of driver {driver} for {about} {too_large}: {_FEWER_CLAIMS}"


_FEWER_CLAIMS = "have each claim request more, or divide the work among several pods"


def parameters_unreadable(whose: str, why: str) -> str:
    """The message about parameters that can't be decoded."""
    return f"parameters of {whose} can't be read: {why}"


def _fault(detail: Any, *, private: bool) -> str:
    path = _shortened(".".join(str(part) for part in detail["loc"])) or "parameters"
    if detail["type"] == "missing":
        return f"{path} is missing"
    named = path if private else f"{path}={_shortened(repr(detail['input']))}"
    if detail["type"] == "extra_forbidden":
        return f"{named} is not a parameter of this driver"
    if private and detail["type"] not in _WITHOUT_VALUES:
        return f"{named}: is not valid"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{named}: {message[:1].lower()}{message[1:]}"


def shown(value: object) -> str:
    """A value that a driver returned, shortened for a message; without addresses in memory, so that the message is
    the same at each attempt."""
    return _shortened(_ADDRESS.sub("", repr(value)))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


def check_answers(
    driver: str, request: Request[Any, Any], nodes: Sequence[str], answers: Mapping[str, Answer]
) -> None:
    """Raises DriverFault unless every claim has a valid answer, and its viable nodes are among the asked ones."""
    if not isinstance(answers, Mapping):
        text = "it must be a mapping from the names of the request's claims to an Answer each"
        raise DriverFault(f"driver {driver} answered {shown(answers)}; {text}")
    asked, checked = frozenset(nodes), None
    for claim in request.claims:
        answer = answers.get(claim.name)
        if answer is None:
            raise DriverFault(f"driver {driver} gave no answer for claim {claim.name!r}")
        if answer is checked:
            continue
        if fault := _answer_fault(answer):
            raise DriverFault(f"driver {driver}, claim {claim.name!r}: {fault}")
        if strange := [node for node in answer.viable if node not in asked]:
            raise DriverFault(f"driver {driver} calls node {strange[0]!r} viable, which it was not asked about")
        if isinstance(answer.alternatives, tuple) and len(answer.alternatives) > MAX_ALTERNATIVES:
            raise DriverFault(
                f"driver {driver} gave {len(answer.alternatives)} alternatives for claim {claim.name!r}; "
                f"at most {MAX_ALTERNATIVES} are allowed"
            )
        checked = answer


def _answer_fault(answer: object) -> str:
    """Which part of the answer has a wrong type; "" if none has."""
    if not isinstance(answer, Answer):
        return f"answered is {shown(answer)}; it must be an Answer"
    if not isinstance(answer.viable, Collection) or isinstance(answer.viable, str):
        return f"viable is {shown(answer.viable)}; it must be a tuple of nodes"
    if not _are_alternatives(answer.alternatives):
        text = "it must be a tuple of nodes, a NodeSelector or None"
        return f"alternatives is {shown(answer.alternatives)}; {text}"
    if not isinstance(answer.reasons, Mapping):
        return f"reasons is {shown(answer.reasons)}; it must be a mapping from nodes to texts"
    texts = (part for item in answer.reasons.items() for part in item)
    strange = next((text for text in texts if not _is_text(text)), "")
    return f"reasons has {shown(strange)}, which is no text that can be written" if strange != "" else ""


def _are_alternatives(given: object) -> bool:
    if isinstance(given, tuple):
        return all(isinstance(node, str) and 0 < len(node) <= MAX_NAME for node in given)
    return given is None or isinstance(given, NodeSelector)


def _is_text(value: object) -> bool:
    """Whether the value is a text without lone surrogates, which JSON can't represent."""
    return isinstance(value, str) and (value.isascii() or value.encode(errors="replace").decode() == value)


def check_observed(driver: str, result: object) -> None:
    """Raises DriverFault unless `observe` returned True, False, or a collection of nodes' names, not a text."""
    if not isinstance(result, bool | Collection) or isinstance(result, str):
        text = "it must be True, False or the names of the nodes on which pods may now succeed"
        raise DriverFault(f"driver {driver} returned {shown(result)} from observe; {text}")


def check_scores(driver: str, scores: Mapping[str, float]) -> None:
    """Raises DriverFault unless every score is from 0 to 1."""
    _check_numbers(driver, "score", scores)
    for node, score in scores.items():
        if not isinstance(score, Real) or not 0 <= score <= 1:
            text = f"driver {driver} gave node {shown(node)} the score {shown(score)}"
            raise DriverFault(f"{text}; it must be a number from 0 to 1")


def check_room(driver: str, left: Mapping[str, float]) -> None:
    """Raises DriverFault unless the room left on each node is a number, 0 or more."""
    _check_numbers(driver, "room_left", left)
    for node, room in left.items():
        if not isinstance(room, Real) or not 0 <= room < inf:
            text = f"driver {driver} has {shown(room)} left on node {shown(node)}"
            raise DriverFault(f"{text}; it must be a number, 0 or more")


def _check_numbers(driver: str, call: str, result: object) -> None:
    if not isinstance(result, Mapping):
        text = f"driver {driver} returned {shown(result)} from {call}"
        raise DriverFault(f"{text}; it must be a mapping from nodes to numbers")


def check_bool(driver: str, call: str, result: object) -> None:
    """Raises DriverFault unless the call returned True or False: a mapping of refusals would count as true."""
    if not isinstance(result, bool):
        raise DriverFault(f"driver {driver} returned {shown(result)} from {call}; it must be True or False")


def check_units(driver: str, claim: str, units: object) -> None:
    """Raises DriverFault unless the units are a whole number, 0 or more."""
    if not isinstance(units, int) or units < 0:
        text = f"driver {driver} counts {shown(units)} units for claim {claim!r}"
        raise DriverFault(f"{text}; it must be a whole number, 0 or more")


def check_capacity(driver: str, capacity: object) -> None:
    """Raises DriverFault unless the capacity is None, or whole numbers with free <= total."""
    if capacity is None:
        return
    free, total = getattr(capacity, "free", None), getattr(capacity, "total", None)
    if not isinstance(free, int) or not isinstance(total, int) or not 0 <= free <= total <= MOST_CAPACITY:
        raise DriverFault(
            f"driver {driver} returned {shown(capacity)}; it must be None, or whole numbers, 0 <= free <= total"
        )


def check_stranded(driver: str, stranded: object) -> None:
    """Raises DriverFault unless it is a `Stranded` with one of the ways and a number of seconds within bounds."""
    way, after = getattr(stranded, "way", None), getattr(stranded, "after_seconds", None)
    in_time = isinstance(after, int | float) and 0 <= after <= MAX_DEADLINE
    if way not in ("Wait", "Fail", "Recreate") or not in_time:
        text = f"it must be Wait, Fail or Recreate after 0 to {MAX_DEADLINE} seconds"
        raise DriverFault(
            f"driver {driver} returned {shown(stranded)} of a claim whose node takes no pods; {text}"
        )


def check_reserve(driver: str, claim: str, reserve: object) -> None:
    """Raises DriverFault unless it is None, or a `Reserve` that can be counted and recorded."""
    if reserve is None:
        return
    fault = "it must be None or a Reserve" if not isinstance(reserve, Reserve) else _reserve_fault(reserve)
    if fault:
        raise DriverFault(f"driver {driver} reserves {shown(reserve)} for claim {claim!r}; {fault}")


def _reserve_fault(reserve: Reserve) -> str:
    if reserve.hold not in ("Ledger", "Nominated"):
        return "hold must be Ledger or Nominated"
    names = reserve.yields_to
    if not isinstance(names, tuple) or len(names) > MAX_YIELDS or not all(map(_is_class_name, names)):
        return f"yields_to must be a tuple of at most {MAX_YIELDS} names of classes"
    if not 0 <= reserve.pods <= MOST_PODS or "pods" in reserve.amounts or len(reserve.amounts) > MAX_RESERVED:
        return f"it may have 0 to {MOST_PODS} pods, and amounts of at most {MAX_RESERVED} other resources"
    try:
        amounts = reserve.thousandths()
    except ValueError as error:
        return str(error)
    return "no amount may be less than 0" if any(amount < 0 for amount in amounts.values()) else ""


def _is_class_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME


def check_uses(driver: str, uses: object) -> None:
    """Raises DriverFault unless `uses` returned at most `MAX_USED` UIDs."""
    uids = uses if isinstance(uses, Sequence) and not isinstance(uses, str) else [None]
    if len(uids) > MAX_USED or not all(isinstance(uid, str) and uid for uid in uids):
        raise DriverFault(
            f"driver {driver} says that a claim uses {shown(uses)}; it must be at most {MAX_USED} UIDs"
        )
