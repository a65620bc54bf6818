"""What became of the pods of a simulated cluster, as `parley demo` and `parley simulate` print it but for text."""

from collections.abc import Sequence
from typing import Any

from parley.cli.output import Output, print_names, printed
from parley.explain.text import print_rows
from parley.simulate.recording import PodRecord

OUTCOME = "PodOutcomeList"

_COLUMNS = ("NAMESPACE", "POD", "NODE", "HOLDS", "REASON")


def show_outcome(records: Sequence[PodRecord], output: Output, *, headings: bool) -> None:
    """A row for each pod (`wide`), their names, or all of it as data of kind OUTCOME."""
    if output is Output.NAME:
        print_names(f"pod/{record.name}" for record in records)
    elif output is Output.WIDE:
        print_rows(_COLUMNS, map(_cells, records), headed=headings)
    else:
        printed(OUTCOME, {"items": [_pod(record) for record in records]}, output)


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
