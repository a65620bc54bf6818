"""A driver's entries in `status.claims` of a PodScheduling: its answers and failures. Pure.

The entries of one pod are always built together: an applied configuration that leaves one out removes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from parley.api.models import AllocationFailure, ClaimScheduling, PodScheduling
from parley.api.names import API_VERSION
from parley.negotiation.answers import Answer
from parley.sdk.standalone.questions import PodQuestion

Entries = tuple[dict[str, Any], ...]

MAX_REASON = 4096
MAX_FAILURE = 1024


def answered(
    driver: str,
    question: PodQuestion,
    answers: Mapping[str, Answer],
    scores: Mapping[str, float],
    capacity: Mapping[str, int],
) -> Entries:
    """The entries for these answers. `scores` are from 0 to 1, by viable node; `capacity` is the number of pods
    with equal requests that fit, by node.

    Only the first entry has the scores: the best score of a node in any entry counts, and repeated for each of
    many claims they would fill the object.
    """
    extra = {"capacity": dict(capacity)} if capacity else {}
    return tuple(
        {**_entry(driver, question, e.name, answers[e.name], {} if index else scores), **extra}
        for index, e in enumerate(question.entries)
    )


def refused(driver: str, question: PodQuestion, code: str, reason: str) -> Entries:
    """The entries for a question that can't be answered: no node is viable, and the reason says what to change.
    `code` is the reason code that the pod gets."""
    nowhere = {
        "viableNodes": [],
        "alternatives": {"nodes": []},
        "reason": reason[:MAX_REASON],
        "waitingFor": code,
    }
    return tuple({**_empty_entry(driver, question.round, e.name), **nowhere} for e in question.entries)


def _empty_entry(driver: str, round_: int, name: str) -> dict[str, Any]:
    return {"name": name, "driverName": driver, "round": round_}


def _entry(
    driver: str, question: PodQuestion, name: str, answer: Answer, scores: Mapping[str, float]
) -> dict[str, Any]:
    entry = {**_empty_entry(driver, question.round, name), "viableNodes": list(answer.viable)}
    if answer.alternatives is not None:
        entry["alternatives"] = (
            {"nodes": list(answer.alternatives)}
            if isinstance(answer.alternatives, tuple)
            else {"nodeSelector": to_builtins(answer.alternatives)}
        )
    preferred = {node: round(100 * scores[node]) for node in answer.viable if scores.get(node)}
    if preferred:
        entry["scores"] = preferred
    if answer.reasons:
        entry["reason"] = "; ".join(f"{node}: {why}" for node, why in answer.reasons.items())[:MAX_REASON]
    return entry


def of_driver(driver: str, scheduling: PodScheduling) -> list[ClaimScheduling]:
    """The driver's entries in the PodScheduling."""
    return [entry for entry in scheduling.status.claims if entry.driver_name == driver]


def are_written(driver: str, scheduling: PodScheduling, entries: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the PodScheduling has exactly these entries of the driver."""
    wanted = {entry["name"]: ClaimScheduling.model_validate(entry) for entry in entries}
    return {entry.name: entry for entry in of_driver(driver, scheduling)} == wanted


def failed(
    driver: str, scheduling: PodScheduling, names: Sequence[str], failure: AllocationFailure | None
) -> Entries:
    """The present entries of the claims with these names, with this failure set, or removed (None).

    A claim without an answer to the present round gets an entry, too, so that the failure can be reported.
    """
    round_ = scheduling.spec.round
    known = {entry.name: entry for entry in of_driver(driver, scheduling) if entry.round == round_}
    wanted: list[dict[str, Any]] = []
    for name in names:
        entry: dict[str, Any] = known[name].wire() if name in known else _empty_entry(driver, round_, name)
        entry.pop("failure", None)
        if failure is not None:
            entry["failure"] = failure.wire()
        wanted.append(entry)
    return tuple(wanted)


def reported_failure(driver: str, scheduling: PodScheduling) -> AllocationFailure | None:
    """The failure that the driver reported for the selected node in this round, None if it reported none."""
    current = (scheduling.spec.round, scheduling.spec.selected_node)
    reported = ((entry.round, entry.failure) for entry in of_driver(driver, scheduling))
    return next((f for round_, f in reported if f is not None and (round_, f.node_name) == current), None)


def body(scheduling: PodScheduling, entries: Entries) -> dict[str, Any]:
    """The configuration to apply. It has the UID, so that a late apply can't create a deleted object again."""
    meta = scheduling.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": "PodScheduling",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "status": {"claims": list(entries)},
    }
