"""The commands that a page of the documentation shows, and what it shows them to print.

A block's lines that begin with `$` are commands, and what follows one is what it prints; in blocks without `$`,
lines that begin with a known program are commands as well.
"""

import re
import textwrap
from collections.abc import Iterator

PROGRAMS = ("parley", "kubectl", "make", "python", "export", "helm", "pip", "source", "mike")


def blocks(text: str) -> Iterator[list[str]]:
    """The lines of each block that is marked as shell, or not marked at all; without the indentation of a list."""
    for language, block in re.findall(r"(?m)^ *```(\w*)\n(.*?)^ *```", text, flags=re.DOTALL):
        if language in ("", "sh", "bash", "console"):
            yield textwrap.dedent(block).splitlines()


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command without its comment, and what the page shows it to print."""
    for lines in blocks(text):
        marked = any(line.startswith("$ ") for line in lines)
        if not marked:
            yield from ((_bare(line), "") for line in lines if line.split(" ")[0] in PROGRAMS)
            continue
        for part in re.split(r"(?m)^\$ ", "\n".join(lines).replace("\\\n", ""))[1:]:
            command, _, output = part.partition("\n")
            yield _bare(command), output


def below(text: str, title: str) -> list[str]:
    """The commands below that heading, up to the next one. Comments of a block have a single `#`."""
    section = re.split(r"(?m)^##+ ", text.split(f"# {title}\n", 1)[1], maxsplit=1)[0]
    return [command for command, _ in commands(section)]


def shown(text: str, beginning: str) -> str:
    """The one command of the page that begins like this."""
    (found,) = {command for command, _ in commands(text) if command.startswith(beginning)}
    return found


def _bare(line: str) -> str:
    return re.sub(r"\s{2,}#.*$", "", line).strip()
