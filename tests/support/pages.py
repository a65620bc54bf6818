"""A page of docs/tutorials as its reader follows it: files to make, commands to type, and what these print.

A block with a file's name as its title is that file. In a block of the language console, lines that begin with `$`
are commands, and what follows is what they print: a line of three dots stands for any lines, three dots within a
line for any text. The title of a console block says what it needs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.support.shell import PROGRAMS, path, typed

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r'(?m)^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL)
_GIVEN = re.compile(r"(mkdir \w+ && cd|python3 -m venv|pip install) ")
"""Commands that make the reader's environment: the test's own is used."""


@dataclass(frozen=True)
class File:
    """To be made, with that text."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """To be typed. `where` is the title of its block."""

    line: str
    shown: str
    where: str = ""


def steps(page: Path) -> Iterator[File | Command]:
    """In the order of the page."""
    for language, title, text in _BLOCK.findall(page.read_text()):
        if language != "console":
            if title:
                yield File(title, text)
            continue
        for part in re.split(r"(?m)^\$ ", text.replace("\\\n", ""))[1:]:
            line, _, shown = part.partition("\n")
            if not _GIVEN.match(line):
                yield Command(line, shown.rstrip(), title)


def follow(page: Path, folder: Path, *places: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
    """Make all files, and run the commands of blocks without a title or with one of `places`."""
    for step in steps(page):
        take(step, folder, *places, environment=environment)


def take(
    step: File | Command, folder: Path, *places: str, environment: Mapping[str, str] = MappingProxyType({})
) -> None:
    """One step: make the file, or run the command if its block has no title, or one of `places`."""
    if isinstance(step, File):
        (folder / step.name).parent.mkdir(parents=True, exist_ok=True)
        (folder / step.name).write_text(step.text)
    elif step.where in ("", *places):
        run(step, folder, environment)


def run(command: Command, folder: Path, environment: Mapping[str, str]) -> None:
    """Fails if the command does, or prints something else than the page shows."""
    printed = typed(command.line, folder, {**environment, "PATH": f"{PROGRAMS}:{environment.get('PATH', path())}"})
    difference = f"{command.line} printed\n{printed}\nand not\n{command.shown}"
    assert is_shown(printed, command.shown), difference


def is_shown(printed: str, shown: str) -> bool:
    """Whether the page shows what was printed, gaps in a line being one space. A page may show nothing."""
    lines = [r"(?:[^\n]*\n)*" if line == "..." else _pattern(line) + r"\n" for line in shown.splitlines()]
    text = "".join(f"{' '.join(line.split())}\n" for line in printed.rstrip().splitlines())
    return not shown or re.fullmatch("".join(lines), text) is not None


def _pattern(line: str) -> str:
    return re.escape(" ".join(line.split())).replace(re.escape("..."), r"[^\n]*")
