"""A node driver that does nothing but note each call of its hooks, in the order in which they come."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from parley_kubelet.edits import Edits
from parley_kubelet.hooks import HeldClaim, NodeClaim, NodeDriver, Offer, Prepared, Settings


class Nothing(BaseModel):
    """There is nothing to hand over."""


class Book(Settings):
    """The file that the calls are noted in."""

    file: Path


class CountingNode(NodeDriver[Nothing, Book]):
    """Its claims have one variable, so that a container shows that it was given the claim."""

    name = "counted.example.com"
    handle = Nothing
    settings = Book

    def devices(self) -> Sequence[Offer]:
        """One that any number of claims may name."""
        return (Offer("counter"),)

    async def prepare(self, claim: NodeClaim[Nothing]) -> Prepared:
        """Note it."""
        self._note("prepare", claim.uid)
        return Prepared(Edits(env={"COUNTED": claim.name}))

    async def unprepare(self, held: HeldClaim[Nothing]) -> None:
        """Note it."""
        self._note("unprepare", held.claim.uid)

    def _note(self, hook: str, uid: str) -> None:
        with self.configured.file.open("a") as file:
            file.write(f"{hook} {uid}\n")
