"""docs/names.md names fields and kinds of Parley that exist."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from parley.sdk import Driver

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "names.md").read_text()
PREFIXES = {"class": "ResourceClass", "claim": "ResourceClaim", "PodScheduling": "PodScheduling"}


def first_column(heading: str) -> list[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here
        array = field.get("type") == "array"
        yield from fields(field["items"] if array else field, here + "[]" * array)


SPECS = [yaml.safe_load(file.read_text())["spec"] for file in (ROOT / "crds").glob("*.yaml")]
FIELDS = {spec["names"]["kind"]: set(fields(spec["versions"][0]["schema"]["openAPIV3Schema"])) for spec in SPECS}


def test_every_kind_is_there() -> None:
    assert set(FIELDS) <= set(first_column("Kinds"))


@pytest.mark.parametrize("cell", first_column("Fields"))
def test_fields_exist(cell: str) -> None:
    prefix, _, rest = cell.partition(":")

    assert set(re.findall(r"`([\w.\[\]]+)`", rest)) - FIELDS[PREFIXES[prefix]] == set()


def test_every_field_of_a_class_is_there() -> None:
    named = {name for cell in first_column("Fields") for name in re.findall(r"`(\w+)`", cell)}

    assert {name for name in FIELDS["ResourceClass"] if "." not in name} - {
        "apiVersion",
        "kind",
        "metadata",
        "status",
    } <= named


def test_short_names_exist() -> None:
    assert {spec["names"]["shortNames"][0] for spec in SPECS} <= set(re.findall(r"`(\w+)`", PAGE))


def test_methods_exist() -> None:
    methods = re.findall(r"^\| `(\w+)\(", PAGE, flags=re.MULTILINE)

    assert methods == ["viable", "allocate", "deallocate"]
    assert all(hasattr(Driver, method) for method in methods)
