"""The page about reason codes has all of them, and nothing else."""

import re
from pathlib import Path

from parley.api import reasons

PAGE = (Path(__file__).parents[3] / "docs" / "reasons.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")
]


def test_every_code_is_on_the_page_and_no_other() -> None:
    codes = sorted(value for name, value in vars(reasons).items() if name.isupper())

    assert sorted(row[0].strip("`") for row in ROWS) == codes


def test_every_code_has_its_meaning_a_remedy_and_what_wakes_the_pod() -> None:
    assert [row[0] for row in ROWS if len(row) != 4 or not all(row)] == []


def test_codes_in_the_text_are_in_the_table() -> None:
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", PAGE)) - {"WaitForFirstConsumer"}

    assert named <= {row[0].strip("`") for row in ROWS}
