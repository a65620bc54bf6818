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
    """A table of medians in Markdown."""
    lines = ["| | with a claim | with a volume | claim / volume |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_row(label, took, field) for label, field in _ROWS)])


def _row(label: str, took: Sequence[Took], field: str) -> str:
    ours, theirs = (
        median(float(getattr(one, field)) for one in took if one.way == way) for way in (WITH_CLAIM, WITH_VOLUME)
    )
    share = f"{ours / theirs:.2f}" if theirs else "-"
    return f"| {label} | {ours:g} | {theirs:g} | {share} |"
