"""Prints the outcome of a simulation, for `demo` and `simulate`, in all formats but text."""

from typing import Any

import typer

from parley.api.resources import CLAIMS
from parley.cli.output import Output, print_names, printed
from parley.explain.text import print_rows
from parley.simulate.outcome import ClaimOutcome, SimulationOutcome
from parley.simulate.recording import PodRecord

OUTCOME = "PodOutcomeList"

_COLUMNS = ("NAMESPACE", "POD", "NODE", "HOLDS", "REASON")
_CLAIM_COLUMNS = ("NAMESPACE", "CLAIM", "CLASS", "ALLOCATED", "HOLDS", "REASON")


def show_outcome(outcome: SimulationOutcome, output: Output, *, headings: bool) -> None:
    """A row for each pod and each claim that no pod names (`wide`), their names, or all of it as data of kind
    OUTCOME."""
    if output is Output.NAME:
        print_names(f"pod/{record.name}" for record in outcome.pods)
        print_names(f"resourceclaim.{CLAIMS.group}/{claim.name}" for claim in outcome.unnamed)
    elif output is Output.WIDE:
        _print_tables(outcome, headings=headings)
    else:
        items = [_pod(record) for record in outcome.pods]
        printed(OUTCOME, {"items": items, "claims": [_claim(claim) for claim in outcome.unnamed]}, output)


def _print_tables(outcome: SimulationOutcome, *, headings: bool) -> None:
    """The tables of pods and of claims, separated by an empty line, as kubectl prints several kinds."""
    if outcome.pods:
        print_rows(_COLUMNS, map(_cells, outcome.pods), headed=headings)
    if outcome.pods and outcome.unnamed:
        typer.echo()
    if outcome.unnamed:
        print_rows(_CLAIM_COLUMNS, map(_claim_cells, outcome.unnamed), headed=headings)


def _cells(record: PodRecord) -> tuple[str, ...]:
    holds = ", ".join(device for claim in record.claims.values() for device in claim.devices)
    return (record.namespace, record.name, record.node or "-", holds or "-", record.reason or "-")


def _pod(record: PodRecord) -> dict[str, Any]:
    return {
        "namespace": record.namespace,
        "name": record.name,
        "node": record.node or None,
        "gone": record.gone,
        "reason": record.reason,
        "claims": [
            {"name": claim.entry, "claim": claim.claim, "driver": claim.driver, "devices": list(claim.devices)}
            for claim in record.claims.values()
        ],
    }


def _claim_cells(claim: ClaimOutcome) -> tuple[str, ...]:
    allocated, holds = claim.whereabouts or "-", ", ".join(claim.devices) or "-"
    return (claim.namespace, claim.name, claim.class_name, allocated, holds, claim.reason or "-")


def _claim(claim: ClaimOutcome) -> dict[str, Any]:
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "class": claim.class_name,
        "allocated": claim.whereabouts,
        "devices": list(claim.devices),
        "reason": claim.reason,
    }
