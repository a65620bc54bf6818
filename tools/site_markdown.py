"""Turns the Markdown of the repository, as GitHub renders it, into what the docs site's renderer understands.

Pure functions of text: a blank line before lists and tables, and links that lead out of `docs/`.
"""

import re
from collections.abc import Callable

FENCE = re.compile(r"^\s*(````?|~~~)")
LISTED = re.compile(r"^(\s*)([-*+]|\d+[.)])\s+")
LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s]+)(\))")


def spaced(text: str) -> str:
    """The text with a blank line before lists and tables that follow a paragraph, and around blocks of code.

    What belongs to an entry of a list is indented by two more: the renderer wants four.
    """
    lines: list[str] = []
    fenced = closed = listed = loose = False
    for line in text.splitlines():
        before = lines[-1] if lines else ""
        fence = bool(FENCE.match(line))
        begins = not fenced and (fence or _begins(line, before, loose))
        if line.strip() and before.strip() and (closed or begins):
            lines.append("")
        if line.strip() and not line.startswith(" ") and not fenced:
            listed = bool(LISTED.match(line))
            loose = False
        loose |= fence
        closed = fence and fenced
        fenced ^= fence
        lines.append("  " + line if listed and line.startswith("  ") else line)
    return "\n".join(lines) + "\n"


def _begins(line: str, before: str, loose: bool) -> bool:
    """Whether the line opens a list or table right below a paragraph, or an entry below one with code in it."""
    if before.startswith("#"):
        return False
    if line.startswith("|"):
        return not before.startswith("|")
    return bool(LISTED.match(line)) and not line.startswith(" ") and (loose or not _in_list(before))


def _in_list(line: str) -> bool:
    return bool(LISTED.match(line)) or line.startswith("  ")


def relinked(text: str, target: Callable[[str], str]) -> str:
    """The text with each relative link's address replaced by `target(address)`; anchors and code stay."""
    parts: list[str] = []
    fenced = False
    for line in text.splitlines(keepends=True):
        fence = bool(FENCE.match(line))
        parts.append(line if fenced or fence else _relinked_line(line, target))
        fenced ^= fence
    return "".join(parts)


def _relinked_line(line: str, target: Callable[[str], str]) -> str:
    def replaced(match: re.Match[str]) -> str:
        address, hash_, anchor = match[2].partition("#")
        if not address or "://" in address or address.startswith("mailto:"):
            return match[0]
        return f"{match[1]}{target(address)}{hash_}{anchor}{match[3]}"

    return LINK.sub(replaced, line)


def with_anchors(text: str) -> str:
    """The text of a page with a table of codes, each row with an anchor of the code's name."""
    return re.sub(r"(?m)^\| `(\w+)` \|", r'| <a id="\1"></a>`\1` |', text)
