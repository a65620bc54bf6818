"""Pods that arrive over some seconds, what became of them, and whether that was right.

Which pods there are is decided beforehand, so that it can be told how many have to be bound in the end. Bindings
are seen by watching, with the moment at which they were seen.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

from tests.cluster.manifests import pod
from tests.cluster.namespace import Namespace, devices_of, end_pod
from tests.cluster.watching import LIMIT, TooLate

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS, RESOURCE_SLICES
from parley.control.objects.mirror import owner_pod_uid
from parley.kube.backoff import Backoff
from parley.kube.client import Client
from parley.kube.informer import Informer, Selection
from parley.sdk import Device


@dataclass(frozen=True)
class Load:
    """Pods by name with the templates of their claims, by entry; those in `leaving` end on the way."""

    pods: Mapping[str, Mapping[str, str]]
    leaving: frozenset[str] = frozenset()
    every: float = 0.04
    """Seconds from one pod's arrival to the next."""

    @property
    def staying(self) -> frozenset[str]:
        return frozenset(self.pods) - self.leaving

    @asynccontextmanager
    async def arriving(self, team: Namespace) -> AsyncGenerator[None, None]:
        """They arrive during the block, which ends when all have come, or at once if that fails."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.arrive(team))
            yield

    async def arrive(self, team: Namespace) -> None:
        """Create the pods one after the other. Each of those that leave ends when ten more have come."""
        names = list(self.pods)
        for number, name in enumerate(names):
            await team.create(pod(name, templates=self.pods[name]))
            if number >= 10 and (earlier := names[number - 10]) in self.leaving:
                await end_pod(team.client, team.name, earlier)
            await asyncio.sleep(self.every)
        for name in names[-10:]:
            if name in self.leaving:
                await end_pod(team.client, team.name, name)


def mixed(count: int, template: str, *, leaving_every: int = 5, every: float = 0.04) -> Load:
    """Every third pod has two claims, the others one; every so manyth pod leaves again."""
    one, two = {"a": template}, {"a": template, "b": template}
    pods = {f"p{n}": two if n % 3 == 0 else one for n in range(count)}
    leaving = frozenset(name for n, name in enumerate(pods) if n % leaving_every == leaving_every - 1)
    return Load(pods, leaving, every)


class Bindings:
    """The pods of a namespace that are bound, and when each binding was seen (the event loop's clock)."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.seen: dict[str, float] = {}
        """By the pod's name, in the order of the bindings; pods that are gone stay in it."""
        self._present: set[str] = set()
        self._waiting: list[tuple[Callable[[], bool], asyncio.Event]] = []
        quick = Backoff(first=0.1, longest=0.5)
        self._informer = Informer(client, PODS, Selection(namespace), on_change=self._changed, backoff=quick)
        self.interruptions = self._informer.interruptions
        """How often watching was interrupted, by cause."""

    @classmethod
    @asynccontextmanager
    async def watch(cls, client: Client, namespace: str) -> "AsyncGenerator[Bindings, None]":
        """Watches within the block."""
        bindings = cls(client, namespace)
        following = asyncio.create_task(bindings._informer.run())
        try:
            yield bindings
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._present.discard(old.metadata.name)
        elif new.spec.node_name and new.metadata.name not in self._present:
            self._present.add(new.metadata.name)
            self.seen.setdefault(new.metadata.name, asyncio.get_running_loop().time())
        for holds, event in self._waiting:
            if holds():
                event.set()

    async def count(self, number: int, *, within: float = LIMIT) -> None:
        """Return when so many pods were bound."""
        await self._until(lambda: len(self.seen) >= number, f"{number} pods were bound", within)

    async def all_of(self, names: Iterable[str], *, within: float = LIMIT) -> None:
        """Return when all of these are bound."""
        wanted = set(names)
        await self._until(lambda: wanted <= self._present, f"{len(wanted)} named pods are bound", within, wanted)

    async def _until(
        self, holds: Callable[[], bool], what: str, within: float, wanted: Iterable[str] = ()
    ) -> None:
        event = asyncio.Event()
        entry = (holds, event)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(within):
                if not holds():
                    await event.wait()
        except TimeoutError:
            missing = sorted(set(wanted) - self._present)
            raise AssertionError(
                f"not within {within:g} s: {what}. {len(self.seen)} were bound; missing: {missing}"
            ) from None
        finally:
            self._waiting.remove(entry)

    def longest_gap(self, since: float) -> float:
        """The longest time without a binding, from the last one before that moment on."""
        moments = sorted(self.seen.values())
        earlier = [moment for moment in moments if moment <= since][-1:]
        later = earlier + [moment for moment in moments if moment > since]
        return max((b - a for a, b in pairwise(later)), default=0.0)


async def assert_each_has_its_own(team: Namespace, expected: Iterable[str], *, devices: bool = True) -> None:
    """These pods and no others are there, each bound, and reserved for it what its claims hold on its node, or,
    without `devices`, reserved what has none.

    Reservations are waited for: a scheduler that did not hear of its binding takes them back, and those who see
    the bound pod make them again. (No kubelet prepares a claim before.)
    """
    pods = {pod.metadata.uid: pod for pod in (await team.client.list(PODS, team.name)).items}
    assert {pod.metadata.name for pod in pods.values()} == set(expected)
    wrong: Sequence[str] = ()

    def right(claims: Collection[BuiltinClaim]) -> bool:
        nonlocal wrong
        wrong = [words for pod in pods.values() if (words := _wrong(pod, claims, devices))]
        return not wrong

    try:
        await team.claims(right, "each pod has its own")
    except TooLate:
        raise AssertionError("\n".join(wrong)) from None
    held: defaultdict[Device, list[str]] = defaultdict(list)
    for claim in (await team.client.list(BUILTIN_CLAIMS, team.name)).items:
        owner = owner_pod_uid(claim)
        if not owner or owner in pods:  # another's device is handed on before its claim is collected
            for device in devices_of(claim):
                held[device].append(claim.metadata.name)
    assert {device: claims for device, claims in held.items() if len(claims) > 1} == {}


def _wrong(pod: Pod, claims: Collection[BuiltinClaim], devices: bool) -> str:
    if not pod.spec.node_name:
        return f"{pod.metadata.name} is not bound"
    named = {status.resource_claim_name for status in pod.status.resource_claim_statuses}
    made = [claim for claim in claims if owner_pod_uid(claim) == pod.metadata.uid]
    own = [claim for claim in made if claim.metadata.name in named]
    # The claim controller makes another one if it did not hear that it had made one.
    if any(claim not in own and claim.status.allocation is not None for claim in made):
        return f"{pod.metadata.name} holds more than it names"
    if len(own) != len(pod.spec.resource_claims):
        return f"{pod.metadata.name} has {len(own)} claims"
    for claim in own:
        users = [user.uid for user in claim.status.reserved_for]
        nodes = {device.pool for device in devices_of(claim)}
        here = {pod.spec.node_name} if devices else set()
        if claim.status.allocation is None or users != [pod.metadata.uid] or nodes != here:
            return (
                f"{claim.metadata.name}: users {users}, devices of {nodes}; the pod is on {pod.spec.node_name!r}"
            )
    return ""


async def assert_all_is_free(team: Namespace, whole: str, bindings: Bindings) -> None:
    """Delete all pods. Then each node's devices can be had at once by one pod with a claim of template `whole`,
    which asks for all that a node has: nothing is kept back for those that are gone."""
    await remove_pods(team)
    nodes = {item.spec.node_name for item in (await team.client.list(RESOURCE_SLICES)).items}
    names = [f"whole-{number}" for number in range(len(nodes))]
    await team.create(*(pod(name, templates={"all": whole}) for name in names))
    await bindings.all_of(names)
    await remove_pods(team)


async def remove_pods(team: Namespace) -> None:
    """Delete all pods and wait until their claims are gone."""
    names = [item.metadata.name for item in (await team.client.list(PODS, team.name)).items]
    await asyncio.gather(*(end_pod(team.client, team.name, name) for name in names))
    await team.claims(lambda claims: not any(map(owner_pod_uid, claims)), "no pod's claim is left")
