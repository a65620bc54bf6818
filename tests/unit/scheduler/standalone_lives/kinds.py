"""Kinds of pods in random lives with standalone drivers: which claims they use, and how much there is of each."""

from collections.abc import Mapping, Sequence
from typing import Final

NODE_NAMES: Final = "abc"

SEATS: Final = 2
"""Tokens on each node."""

KINDS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "seat": (["seat"], []),
    "disk": (["disk"], []),
    "mixed": (["seat", "one"], []),
    "both": (["seat", "disk"], []),
    "mine": ([], ["mine"]),
    "nas": ([], ["nas"]),
    "common": ([], ["common"]),
    "all": (["one"], ["mine"]),
    "loan": (["loan"], []),
    "lent": ([], ["lent"]),
    "lent with others": (["one", "loan", "seat"], ["lent"]),
    "prompt": ([], ["prompt"]),
}
"""Templates and named claims of pods."""

BORROWERS: Final = ("loan", "lent", "lent with others", "prompt")
"""Kinds of pods that need the class which gets another driver."""

IMMEDIATE: Final = "prompt"
"""The named claim that is allocated without a pod."""

NAMED: Mapping[str, tuple[str, str]] = {
    "mine": ("seat", "seat"),
    "nas": ("disk", "disk"),
    "common": ("seats", ""),
    "lent": ("loan", "loan"),
    IMMEDIATE: ("loan", "loan"),
}
"""Classes of the named claims, and what of a node they use up that others could have."""

VAULTS: Final = ("vault-1", "vault-2", "vault-3")
"""Claims that are allocated without a pod, by a standalone driver whose class has a limit."""

MOST_VAULTS: Final = 2
"""How many vaults the class allows."""

ENOUGH: Final = 1000
"""Loans that each node has: nobody waits for one."""


def amount(what: str) -> int:
    """How much of that resource a node has; 1 for a named claim."""
    return {"seat": SEATS, "loan": ENOUGH}.get(what, 1)
