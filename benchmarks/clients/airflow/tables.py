"""The figures of both ways beside each other: medians, and the one as a share of the other. Pure."""

from collections.abc import Sequence
from statistics import median

from benchmarks.clients.airflow.runs import WITH_CLAIM, WITH_VOLUME, Took

_ROWS = (
    ("objects created, Events aside", "objects"),
    ("of them pods", "pods"),
    ("of these the provisioner's helpers", "helpers"),
    ("trigger to first task running, s", "first_task_s"),
    ("first task's pod created to running, s", "first_pod_s"),
    ("trigger to the end of the run, s", "end_s"),
    ("from then until nothing is left, s", "gone_s"),
)


def side_by_side(took: Sequence[Took]) -> str:
    """A table in Markdown: medians, and from the least to the most."""
    lines = ["| | with a claim | with a volume | claim / volume |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_row(label, took, field) for label, field in _ROWS)])


def _row(label: str, took: Sequence[Took], field: str) -> str:
    ours, theirs = (
        [float(getattr(one, field)) for one in took if one.way == way] for way in (WITH_CLAIM, WITH_VOLUME)
    )
    share = f"{median(ours) / median(theirs):.2f}" if median(ours) and median(theirs) else ""
    return f"| {label} | {_shown(ours)} | {_shown(theirs)} | {share} |"


def _shown(values: Sequence[float]) -> str:
    middle, least, most = round(median(values), 1), min(values), max(values)
    return f"{middle:g}" if least == most else f"{middle:g} ({least:g} to {most:g})"
