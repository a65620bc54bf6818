"""The rules of "1. Answer"."""

from collections.abc import Mapping, Sequence
from typing import Any

from parley.api import reasons
from parley.conformance.checks.hostile import hostile, of_a_wrong_type
from parley.conformance.results import Check, NotApplicable, Unmet
from parley.conformance.stage import Entries, Stage, entry_text, viable_nodes

_SECTION = "1. Answer"
_BATCH = 16
"""The number of unanswered questions at a time."""


async def _answers(stage: Stage) -> None:
    """A question is answered, with its round."""
    claim = await stage.claim()
    pod = await stage.ask(claim)
    entry = (await stage.answered(pod, claim))[claim]
    about = stage.question(pod)
    if entry["driverName"] != stage.subject.driver:
        raise Unmet(about, f"driverName {stage.subject.driver}", f"driverName {entry['driverName']}")
    if not viable_nodes(entry):
        raise Unmet(about, f"one of {', '.join(stage.nodes)} viable, as nothing is allocated", entry_text(entry))
    _check_candidates(about, entry, stage.nodes)


def _check_candidates(about: str, entry: Mapping[str, Any], candidates: Sequence[str]) -> None:
    if strange := set(viable_nodes(entry)) - set(candidates):
        raise Unmet(about, f"viableNodes among {', '.join(candidates)}", ", ".join(sorted(strange)))


async def _answers_every_claim(stage: Stage) -> None:
    """Every claim of the driver has an entry."""
    claims = [await stage.claim(), await stage.claim()]
    await stage.answered(await stage.ask(*claims), *claims)


async def _answers_the_next_round(stage: Stage) -> None:
    """A new round is answered anew."""
    claim = await stage.claim()
    pod = await stage.ask(claim)
    await stage.answered(pod, claim)
    await stage.set_question(pod, round=2, candidateNodes=[stage.nodes[-1]])
    entry = (await stage.answered(pod, claim, round_=2))[claim]
    _check_candidates(stage.question(pod), entry, stage.nodes[-1:])


async def _leaves_other_entries(stage: Stage) -> None:
    """Other drivers' entries stay as they are."""
    claim, foreign = await stage.claim(), "foreign"
    pod = await stage.ask(claim, foreign=[foreign])
    wanted = await stage.answer_for_another(pod, foreign)
    await stage.answered(pod, claim)
    await stage.set_question(pod, round=2)
    await stage.answered(pod, claim, round_=2)
    await stage.settle()
    entry = (await stage.entries(pod)).get(foreign, {})
    if entry != wanted:
        expected = f"entry {foreign} of another driver as it was ({entry_text(wanted)})"
        raise Unmet(stage.question(pod), expected, entry_text(entry))


async def _judges_claims_together(stage: Stage) -> None:
    """Claims of a pod are judged together."""
    node, held = await stage.full_node()
    await stage.free(held[-1])
    claims = [await stage.claim(), await stage.claim()]
    pod = await stage.ask(*claims, nodes=[node])
    entries = await stage.answered(pod, *claims)
    if all(viable_nodes(entries[claim]) for claim in claims):
        expected = f"{node}, which has room for one claim, not viable for a pod with two"
        raise Unmet(stage.question(pod), expected, f"{node} is viable for both")


async def _answers_with_an_empty_list(stage: Stage) -> None:
    """Where nothing is viable, an empty list is the answer."""
    await stage.fill(await stage.usable_node())


async def _keeps_answers_up_to_date(stage: Stage) -> None:
    """Answers change with what is free."""
    node, held = await stage.full_node()
    claim = await stage.claim()
    pod = await stage.ask(claim, nodes=[node])
    await stage.answered(pod, claim)
    await stage.free(held[0])

    def useful(found: Entries) -> bool:
        return viable_nodes(found.get(claim, {})) == [node] and found[claim]["round"] == 1

    await stage.until_entries(pod, useful, f"{node} viable in round 1, as a claim there was deallocated")


async def _shares_capacity(stage: Stage) -> None:
    """The capacity of all nodes together is not more than there is."""
    node, held = await stage.full_node()
    await stage.free(held[-1])
    claim = await stage.claim()
    pod = await stage.ask(claim)
    capacity = _capacity((await stage.answered(pod, claim))[claim])
    if len(capacity) < 2:
        return
    first = node if node in capacity else next(iter(capacity))
    await stage.set_question(pod, selectedNode=first)
    await stage.allocated(claim)
    for other in capacity.keys() - {first}:
        claim = await stage.claim()
        pod = await stage.ask(claim, nodes=[other])
        entry = (await stage.answered(pod, claim))[claim]
        if not viable_nodes(entry):
            expected = f"{other} viable after a claim was allocated on {first}: its answer had capacity {capacity}"
            raise Unmet(stage.question(pod), expected, entry_text(entry))


def _capacity(entry: Mapping[str, Any]) -> Mapping[str, int]:
    """The capacity in the entry, by node. Raises NotApplicable if there is none."""
    found: Mapping[str, int] = entry.get("capacity") or {}
    if not found:
        raise NotApplicable("the answer has no capacity")
    return found


async def _counts_capacity(stage: Stage) -> None:
    """The capacity of a node is not more than there is."""
    node, held = await stage.full_node()
    await stage.free(held[-1])
    claim = await stage.claim()
    pod = await stage.ask(claim)
    entry = (await stage.answered(pod, claim))[claim]
    capacity = _capacity(entry)
    if strange := capacity.keys() - set(viable_nodes(entry)):
        raise Unmet(stage.question(pod), "capacity of viable nodes", f"of {', '.join(sorted(strange))}, too")
    if capacity.get(node, 1) != 1:
        expected = f"capacity 1 of {node}, which has room for one claim, or none"
        raise Unmet(stage.question(pod), expected, f"capacity {capacity[node]}")


async def _refuses_parameters(stage: Stage) -> None:
    """Parameters not understood are an answer, with a reason."""
    parameters = stage.subject.parameters
    if not parameters:
        raise NotApplicable("the claim in the files has no parameters")
    for field, value in parameters.items():
        claim = await stage.claim({**parameters, field: of_a_wrong_type(value)})
        pod = await stage.ask(claim)
        entry = (await stage.answered(pod, claim))[claim]
        alternatives = (entry.get("alternatives") or {}).get("nodes")
        words = entry.get("reason") or ""
        is_refused = alternatives == [] and entry.get("waitingFor") == reasons.PARAMETERS_INVALID
        if viable_nodes(entry) or not is_refused or claim not in words or field not in words:
            expected = (
                f"no viable nodes, alternatives {{nodes: []}}, waitingFor {reasons.PARAMETERS_INVALID}, and a "
                f"reason that names claim {claim} and field {field}, which has a wrong type"
            )
            raise Unmet(stage.question(pod), expected, entry_text(entry))


async def _heeds_references(stage: Stage) -> None:
    """Parameters in an object that can't be read are not made up."""
    claim = await stage.claim(parametersRef={"kind": "ConfigMap", "name": "not-there"})
    pod = await stage.ask(claim)
    entry = (await stage.answered(pod, claim))[claim]
    if viable_nodes(entry) or not entry.get("reason"):
        expected = (
            f"no viable nodes, and a reason, as parametersRef of claim {claim} names an object that is not there"
        )
        raise Unmet(stage.question(pod), expected, entry_text(entry))


async def _survives_parameters(stage: Stage) -> None:
    """The driver survives whatever users write."""
    waiting: list[tuple[str, str]] = []
    for parameters in hostile(stage.subject.parameters):
        claim = await stage.claim(parameters)
        waiting.append((await stage.ask(claim), claim))
        if len(waiting) == _BATCH:
            await _all_answered(stage, waiting)
            waiting = []
    await _all_answered(stage, waiting)
    claim = await stage.claim()
    await stage.answered(await stage.ask(claim), claim)


async def _all_answered(stage: Stage, waiting: Sequence[tuple[str, str]]) -> None:
    for pod, claim in waiting:
        try:
            await stage.answered(pod, claim)
        except Unmet as unmet:
            parameters = (await stage.get_claim(claim))["spec"]["parameters"]
            seen = f"{unmet.seen}; the claim's parameters: {str(parameters)[:200]}"
            raise Unmet(unmet.about, unmet.expected, seen) from None
        await stage.drop(pod)


BASIC = (Check("answers", _SECTION, _answers, basic=True),)
CHECKS = (
    Check("every-claim", _SECTION, _answers_every_claim),
    Check("next-round", _SECTION, _answers_the_next_round),
    Check("own-entries", _SECTION, _leaves_other_entries, ("next-round",)),
    Check("together", _SECTION, _judges_claims_together, ("every-claim",)),
    Check("empty-list", _SECTION, _answers_with_an_empty_list),
    Check("up-to-date", _SECTION, _keeps_answers_up_to_date),
    Check("capacity", _SECTION, _counts_capacity),
    Check("capacity-of-all", _SECTION, _shares_capacity, ("capacity",)),
    Check("bad-parameters", _SECTION, _refuses_parameters),
    Check("parameters-ref", _SECTION, _heeds_references),
    Check("hostile-parameters", _SECTION, _survives_parameters),
)
