"""Plays the controller's side of the protocol for one check, in its own namespace, with its own class and pods.

A check waits up to `Patience.limit` for what must happen, and for `Patience.settle` to see what must not happen.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from parley.api.names import DRIVERS_LABEL, STANDALONE, driver_finalizer
from parley.api.resources import CLAIMS, CLASSES, NODES, POD_SCHEDULINGS, Resource
from parley.conformance.addresses import NAMESPACES
from parley.conformance.process import DriverProcess
from parley.conformance.results import NotApplicable, Unmet
from parley.conformance.subject import Subject
from parley.conformance.traffic import DriverTraffic
from parley.kube.client import AlreadyExists, Client, NotFound

Json = dict[str, Any]
Entries = Mapping[str, Json]

QUESTIONS, ASKED = POD_SCHEDULINGS.untyped(), CLAIMS.untyped()
FOREIGN = "another.example.com"
"""A driver that does not run."""

MOST_CLAIMS = 32
_POLL = 0.1


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to wait: `limit` for what must happen, `settle` for what must not."""

    limit: float = 30.0
    settle: float = 2.0


@dataclass(frozen=True)
class Scene:
    """The environment that all checks share. `in_memory`: nodes may be changed. `driver` is None if it can't be
    restarted. `suffix` distinguishes the names of this run from those of others."""

    client: Client
    traffic: DriverTraffic
    subject: Subject
    driver: DriverProcess | None
    patience: Patience
    in_memory: bool = True
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Allocated:
    """A pod with one claim that the driver allocated."""

    pod: str
    claim: str


class Stage:
    """The environment of one check. `name` is that of its namespace and first class; `class_name` is the class of
    new claims."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = self.class_name = name
        self._classes: list[str] = []
        self.subject, self.traffic, self._client = scene.subject, scene.traffic, scene.client
        self.finalizer = driver_finalizer(scene.subject.driver)
        self.nodes = scene.subject.nodes
        self._created = 0

    async def open(self, **of_class: Any) -> None:
        """Create the namespace and the class, with these fields besides those of the subject."""
        with suppress(AlreadyExists):
            await self._client.create(NAMESPACES, {"metadata": {"name": self.name}})
        await self._create_class(of_class)

    async def use_class(self, **of_class: Any) -> None:
        """Create another class, for claims from now on, with these fields besides those of the subject. It has a
        new name: a driver that has not seen it yet can't confuse it with the former one."""
        self.class_name = f"{self.name}-{len(self._classes) + 1}"
        await self._create_class(of_class)

    async def _create_class(self, of_class: Mapping[str, Any]) -> None:
        body = {**self.subject.class_body, **of_class, "metadata": {"name": self.class_name}}
        self._classes.append(self.class_name)
        await self._client.create(CLASSES, body)

    # Claims

    async def claim(
        self, parameters: Mapping[str, Any] | None = None, *, finalizers: Sequence[str] = (), **more: Any
    ) -> str:
        """Create a claim with the subject's parameters, or others; returns its name."""
        self._created += 1
        name = f"claim-{self._created}"
        meta = {"name": name, **({"finalizers": list(finalizers)} if finalizers else {})}
        chosen = self.subject.parameters if parameters is None else parameters
        chosen = None if "parametersRef" in more else chosen
        spec = {"resourceClassName": self.class_name, **({} if chosen is None else {"parameters": chosen}), **more}
        await self._client.create(CLAIMS, {"metadata": meta, "spec": spec}, self.name)
        return name

    async def get_claim(self, name: str) -> Json:
        """The claim's current state; {} if it was deleted."""
        return await self._found(ASKED, name)

    async def write_claim(self, name: str, body: Json, subresource: str = "") -> None:
        """Patch a claim by a merge patch, as the controller does."""
        await self._client.patch(CLAIMS, name, body, self.name, subresource=subresource)

    async def request_deallocation(self, claim: str) -> None:
        """Request the claim's deallocation."""
        await self.write_claim(claim, {"status": {"deallocationRequested": True}}, "status")

    async def delete_claim(self, claim: str) -> None:
        """Delete the claim, as a user does."""
        with suppress(NotFound):
            await self._client.delete(CLAIMS, claim, self.name)

    # Questions

    async def ask(
        self, *claims: str, nodes: Sequence[str] = (), foreign: Sequence[str] = (), selected: str = ""
    ) -> str:
        """Create a PodScheduling that asks about a new pod's claims; entries have the claims' names, `foreign`
        ones are another driver's. With a `selected` node it asks for the allocation at once. Returns the pod's
        name."""
        self._created += 1
        pod = f"pod-{self._created}"
        drivers = {**dict.fromkeys(claims, self.subject.driver), **dict.fromkeys(foreign, FOREIGN)}
        entries = [{"name": c, "driverName": d, "resourceClaimName": c} for c, d in drivers.items()]
        body = {
            "metadata": {"name": pod, "labels": {DRIVERS_LABEL: STANDALONE}},
            "spec": {
                "claims": entries,
                "candidateNodes": list(nodes or self.nodes),
                "round": 1,
                **({"selectedNode": selected} if selected else {}),
            },
        }
        await self._client.create(POD_SCHEDULINGS, body, self.name)
        return pod

    async def set_question(self, pod: str, **spec: Any) -> None:
        """Change the PodScheduling's spec: the next question, or the selected node."""
        await self._client.patch(POD_SCHEDULINGS, pod, {"spec": spec}, self.name)

    async def touch(self, resource: Resource[Any], name: str, value: str) -> None:
        """Change an annotation without meaning, to cause an event."""
        body = {"metadata": {"annotations": {"conformance.parley.dev/touched": value}}}
        await self._client.patch(resource, name, body, self.name)

    async def answer_for_another(self, pod: str, claim: str) -> Json:
        """Apply an answer of another driver; returns the entry."""
        entry: Json = {"name": claim, "driverName": FOREIGN, "round": 1, "viableNodes": [self.nodes[0]]}
        body = {"metadata": {"name": pod}, "status": {"claims": [entry]}}
        await self._client.apply(POD_SCHEDULINGS, pod, body, self.name, field_manager=FOREIGN, force=True)
        return entry

    async def drop(self, pod: str) -> None:
        """Delete the pod's PodScheduling, as when the pod was deleted."""
        with suppress(NotFound):
            await self._client.delete(POD_SCHEDULINGS, pod, self.name)

    async def entries(self, pod: str) -> Entries:
        """The current answers, by claim."""
        found = await self._found(QUESTIONS, pod)
        return {entry["name"]: entry for entry in (found.get("status") or {}).get("claims") or ()}

    async def answered(self, pod: str, *claims: str, round_: int = 1) -> Entries:
        """The entries, when each of these claims has one of that round. Raises Unmet."""

        def wanted(found: Entries) -> bool:
            return all(found.get(claim, {}).get("round") == round_ for claim in claims)

        return await self.until_entries(pod, wanted, f"an entry of round {round_} for {', '.join(claims)}")

    async def until_entries(self, pod: str, wanted: Callable[[Entries], bool], expected: str) -> Entries:
        """The entries as soon as `wanted` is true of them. Raises Unmet."""
        found: Entries = await self._until(
            lambda: self.entries(pod), wanted, self.question(pod), expected, entries_text
        )
        return found

    # Allocations

    async def until_claim(self, name: str, wanted: Callable[[Json], bool], expected: str) -> Json:
        """The claim ({} if it is gone) as soon as `wanted` is true of it. Raises Unmet."""
        found: Json = await self._until(
            lambda: self.get_claim(name), wanted, self.about(name), expected, claim_text
        )
        return found

    async def until_any_claim(self, names: Sequence[str], wanted: Callable[[Json], bool], expected: str) -> None:
        """Return as soon as `wanted` is true of one of the claims. Raises Unmet."""

        async def found() -> list[Json]:
            return [await self.get_claim(name) for name in names]

        await self._until(
            found,
            lambda claims: any(map(wanted, claims)),
            self.about(" and ".join(names)),
            expected,
            lambda claims: "; ".join(map(claim_text, claims)),
        )

    async def allocated(self, claim: str, pod: str = "") -> Json:
        """The claim when it has an allocation. Raises Unmet, with the failure that is reported to the pod."""
        try:
            return await self.until_claim(claim, has_allocation, "an allocation")
        except Unmet as unmet:
            told = failure((await self.entries(pod)).get(claim, {})) if pod else {}
            seen = f"{unmet.seen}; {self.question(pod)}: failure={told!r}" if told else unmet.seen
            raise Unmet(unmet.about, unmet.expected, seen) from None

    async def allocate(self, node: str = "", **parameters: Any) -> Allocated:
        """A pod whose claim the driver allocated, on the node or on one that is viable. Raises Unmet."""
        claim = await self.claim(**parameters)
        pod = await self.ask(claim, nodes=[node] if node else self.nodes)
        entry = (await self.answered(pod, claim))[claim]
        chosen = next(iter(viable_nodes(entry)), "")
        if not chosen:
            raise Unmet(self.question(pod), "a viable node, as the driver is idle", entry_text(entry))
        await self.set_question(pod, selectedNode=chosen)
        await self.allocated(claim, pod)
        return Allocated(pod, claim)

    async def free(self, what: Allocated) -> None:
        """Delete the pod, and wait until its claim is deallocated. Raises Unmet."""
        await self.drop(what.pod)
        await self.request_deallocation(what.claim)
        await self.until_claim(what.claim, lambda claim: not has_allocation(claim), "no allocation any more")

    async def usable_node(self) -> str:
        """The last node that is viable for a claim: drivers choose the first by themselves. Raises
        NotApplicable."""
        claim = await self.claim()
        pod = await self.ask(claim)
        try:
            found = viable_nodes((await self.answered(pod, claim))[claim])
        except Unmet as unmet:
            raise NotApplicable(f"no answer to a question about one claim: {unmet}") from None
        await self.drop(pod)
        await self.delete_claim(claim)
        if not found:
            raise NotApplicable(f"none of {', '.join(self.nodes)} is viable for one claim")
        return found[-1]

    async def labels_of(self, node: str) -> Mapping[str, str]:
        """The node's labels; none if it does not exist."""
        try:
            return (await self._client.get(NODES, node)).metadata.labels
        except NotFound:
            return {}

    async def fill(self, node: str) -> list[Allocated]:
        """Allocate on the node until it is not viable any more. Raises Unmet if a question is not answered, and
        NotApplicable if the node takes too much."""
        held: list[Allocated] = []
        while len(held) < MOST_CLAIMS:
            claim = await self.claim()
            pod = await self.ask(claim, nodes=[node])
            if not viable_nodes((await self.answered(pod, claim))[claim]):
                await self.drop(pod)
                await self.delete_claim(claim)
                return held
            await self.set_question(pod, selectedNode=node)
            await self.allocated(claim, pod)
            held.append(Allocated(pod, claim))
        raise NotApplicable(f"{MOST_CLAIMS} claims did not fill {node}: give the class less, to see it full")

    async def full_node(self) -> tuple[str, list[Allocated]]:
        """A node that was filled, and its allocations. Raises NotApplicable."""
        node = await self.usable_node()
        try:
            return node, await self.fill(node)
        except Unmet as unmet:
            raise NotApplicable(f"{node} can't be seen to be full: {unmet}") from None

    # Time

    async def settle(self) -> None:
        """Wait for as long as something that must not happen is given time to happen."""
        await asyncio.sleep(self.scene.patience.settle)

    async def until(self, holds: Callable[[], bool], about: str, expected: str, seen: str) -> None:
        """Wait until a condition holds that is not about an object. Raises Unmet."""

        async def now() -> bool:
            return holds()

        await self._until(now, bool, about, expected, lambda _: seen)

    async def _until(
        self,
        read: Callable[[], Awaitable[Any]],
        wanted: Callable[[Any], bool],
        about: str,
        expected: str,
        text: Callable[[Any], str],
    ) -> Any:
        """Read until `wanted` is true of the result, and return that. Raises Unmet."""
        found: Any = None
        try:
            async with asyncio.timeout(self.scene.patience.limit):
                while not wanted(found := await read()):  # noqa: ASYNC110 - it is another process that writes
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            expected = f"{expected} within {self.scene.patience.limit:g} s"
            raise Unmet(about, expected, "nothing" if found is None else text(found)) from None
        return found

    async def _found(self, resource: Resource[Json], name: str) -> Json:
        try:
            return await self._client.get(resource, name, self.name)
        except NotFound:
            return {}

    def about(self, claim: str) -> str:
        """The claim as messages name it."""
        return f"ResourceClaim {self.name}/{claim}"

    def question(self, pod: str) -> str:
        """The PodScheduling as messages name it."""
        return f"PodScheduling {self.name}/{pod}"

    # The end

    async def close(self) -> None:
        """Delete all objects of the check; finalizers that the driver does not remove are removed by force."""
        self.traffic.end_refusals()
        for question in (await self._client.list(QUESTIONS, self.name)).items:
            await self.drop(question["metadata"]["name"])
        names = [claim["metadata"]["name"] for claim in (await self._client.list(ASKED, self.name)).items]
        for name in names:
            with suppress(NotFound):
                if has_allocation(await self.get_claim(name)):
                    await self.write_claim(name, {"status": {"reservedFor": None}}, "status")
                await self.delete_claim(name)
        for name in names:
            try:
                await self.until_claim(name, lambda claim: not claim, "no claim")
            except Unmet:
                with suppress(NotFound):
                    await self.write_claim(name, {"metadata": {"finalizers": None}})
        made = [(CLASSES.untyped(), name) for name in self._classes]
        for resource, name in (*made, (NAMESPACES, self.name)):
            with suppress(NotFound):
                await self._client.delete(resource, name)


def has_allocation(claim: Mapping[str, Any]) -> bool:
    """Whether the claim is allocated."""
    return bool((claim.get("status") or {}).get("allocation"))


def viable_nodes(entry: Mapping[str, Any]) -> list[str]:
    """The viable nodes in a driver's answer."""
    return list(entry.get("viableNodes") or ())


def failure(entry: Mapping[str, Any]) -> Json:
    """The failure in a driver's answer; {} if there is none."""
    found: Json = entry.get("failure") or {}
    return found


def entry_text(entry: Mapping[str, Any]) -> str:
    """An entry as text for messages."""
    shown = {name: value for name, value in entry.items() if name not in ("name", "driverName")}
    return ", ".join(f"{name}={value!r}" for name, value in shown.items()) or "no entry"


def entries_text(entries: Entries) -> str:
    """All entries as text for messages."""
    return "; ".join(f"{name}: {entry_text(entry)}" for name, entry in entries.items()) or "no entries"


def claim_text(claim: Mapping[str, Any]) -> str:
    """The fields of a claim that drivers write, as text for messages."""
    if not claim:
        return "it is gone"
    status, meta = claim.get("status") or {}, claim["metadata"]
    shown = {
        name: status[name] for name in ("driverName", "allocation", "deallocationRequested") if name in status
    }
    return f"finalizers={meta.get('finalizers') or []!r}, status={shown!r}"
