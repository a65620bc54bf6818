"""What `parley-kubelet doctor` has found, and how it is printed: as lines, a table, names or data. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from parley.api.names import CLI_VERSION
from parley_kubelet.settings import JSON, NAME, TEXT, WIDE

_HEADINGS = ("STATE", "SUBJECT", "FOUND", "REMEDY")


@dataclass(frozen=True, slots=True)
class NodeDiagnosis:
    """What was looked at, what was found, and how to fix it; "" if it is well."""

    subject: str
    found: str
    remedy: str = ""

    @property
    def well(self) -> bool:
        """Whether nothing has to be done."""
        return not self.remedy

    @property
    def state(self) -> str:
        """In a word."""
        return "ok" if self.well else "fix"

    def __str__(self) -> str:
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"{self.state:<4}  {self.subject}: {self.found}{remedy}"


def shown(findings: Sequence[NodeDiagnosis], node: str, output: str, *, headings: bool = True) -> str:
    """The findings about that node in the format `output` of the settings; without the headings of a table, where
    it is to have none."""
    if output == TEXT:
        return "\n".join(map(str, findings))
    if output == NAME:
        return "\n".join(dict.fromkeys(_name(one) for one in findings if not one.well))
    if output == WIDE:
        rows = [(one.state, one.subject, one.found, one.remedy or "-") for one in findings]
        return "\n".join(_table([_HEADINGS, *rows] if headings else rows))
    data = {"apiVersion": CLI_VERSION, "kind": "NodeDiagnosis", "nodeName": node, "items": [*map(_item, findings)]}
    if output == JSON:
        return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip()


def _name(finding: NodeDiagnosis) -> str:
    return f"check/{finding.subject.lower().replace(' ', '-')}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The rows with their columns below each other, two blanks apart, as kubectl has them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _item(finding: NodeDiagnosis) -> dict[str, Any]:
    return {"subject": finding.subject, "found": finding.found, "remedy": finding.remedy, "well": finding.well}
