"""The findings of `parley-kubelet doctor`, and their output as lines, a table, names or data. No I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from parley.api.names import CLI_VERSION
from parley_kubelet.settings import JSON, NAME, TEXT, WIDE

_HEADINGS = ("STATE", "SUBJECT", "FOUND", "REMEDY")


@dataclass(frozen=True, slots=True)
class NodeDiagnosis:
    """The subject of a check, what was found, and the remedy; "" if nothing is wrong."""

    subject: str
    found: str
    remedy: str = ""

    @property
    def well(self) -> bool:
        """Whether nothing has to be done."""
        return not self.remedy

    @property
    def state(self) -> str:
        """The state in a word: ok or fix."""
        return "ok" if self.well else "fix"

    def __str__(self) -> str:
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"{self.state:<4}  {self.subject}: {self.found}{remedy}"


def shown(findings: Sequence[NodeDiagnosis], node: str, output: str, *, headings: bool = True) -> str:
    """The findings about that node in the format `output` of the settings; `headings` are those of the table."""
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
    """The rows with aligned columns, two blanks apart, as kubectl prints them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _item(finding: NodeDiagnosis) -> dict[str, Any]:
    return {"subject": finding.subject, "found": finding.found, "remedy": finding.remedy, "well": finding.well}
