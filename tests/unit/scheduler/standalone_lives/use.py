"""What pods in random lives with standalone drivers use, and the rules for it: no resource is used twice."""

from collections import Counter
from collections.abc import Mapping

from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.standalone_lives.drivers import Vaults
from tests.unit.scheduler.standalone_lives.kinds import (
    IMMEDIATE,
    KINDS,
    MOST_VAULTS,
    NAMED,
    NODE_NAMES,
    amount,
)

from parley.api.builtin import Pod
from parley.api.resources import CLAIMS, PODS


class Use:
    """Reads from the API what pods use, and asserts the rules.

    `pods` has the kinds of pods by name, `lent` the UIDs of claims for which lenders hold something, by driver.
    """

    def __init__(self, world: World, pods: Mapping[str, str], lent: Mapping[str, set[str]]) -> None:
        self._world = world
        self._pods = pods
        self._lent = lent

    async def living(self) -> list[Pod]:
        """Pods that were added and have not ended."""
        pods = (await self._world.client.list(PODS, "default")).items
        return [
            pod
            for pod in pods
            if pod.metadata.name in self._pods and pod.status.phase not in ("Succeeded", "Failed")
        ]

    async def _used(self) -> Counter[tuple[str, str]]:
        """What bound pods use: of each node, and named claims."""
        used: Counter[tuple[str, str]] = Counter()
        for pod in await self.living():
            if not (node := pod.spec.node_name):
                continue
            templates, claims = KINDS[self._pods[pod.metadata.name]]
            used.update((what, node) for what in templates)
            for name in claims:
                if what := NAMED[name][1]:
                    used.update(((what, node), (name, "")))
        return used

    async def check(self) -> None:
        """Nothing is used more than there is, and there are no more vaults than the class allows."""
        for (what, where), count in (await self._used()).items():
            assert count <= amount(what), f"{what} is used {count} times on {where!r}"
        vaults = self._lent.get(Vaults.name, set())
        assert len(vaults) <= MOST_VAULTS, f"{vaults} are more than the class allows"

    async def check_waiting(self) -> None:
        """No pod waits that could run."""
        used = await self._used()
        claims = (await self._world.client.list(CLAIMS, "default")).items
        used.update((one.metadata.name, "") for one in claims if one.metadata.deletion_timestamp)
        mirrors = await self._world.mirrors()
        used.update((one.metadata.name, "") for one in mirrors if one.metadata.deletion_timestamp)
        for pod in await self.living():
            kind = self._pods[pod.metadata.name]
            if not pod.spec.node_name and (where := self._could_run(kind, used)):
                status = (await self._world.scheduling(pod.metadata.name)).status
                raise AssertionError(
                    f"{pod.metadata.name} ({kind}) could run on {where}: {status.waiting_for} {status.message}"
                )

    async def check_lent(self) -> None:
        """Every loan is one that a pod uses, or that of the immediate claim."""
        all_used = await self._used()
        used = sum(count for (what, _), count in all_used.items() if what == "loan")
        used += not all_used[IMMEDIATE, ""]
        vaults = self._lent.get(Vaults.name, set())
        assert len(vaults) == MOST_VAULTS, f"{vaults} are less than the class allows"
        lent = sum(map(len, self._lent.values())) - len(vaults)
        assert lent == used, f"{used} loans are used of {self._lent}"

    def _could_run(self, kind: str, used: Mapping[tuple[str, str], int]) -> list[str]:
        """The nodes where everything that pods of the kind need is left; nowhere if another pod uses its claim,
        or that is being deleted."""
        templates, claims = KINDS[kind]
        if kind == "all" or any(used.get((name, ""), 0) for name in claims):
            return []
        wanted = [*templates, *(NAMED[name][1] for name in claims if NAMED[name][1])]
        return [node for node in NODE_NAMES if all(self._left(what, node, used) for what in wanted)]

    @staticmethod
    def _left(what: str, node: str, used: Mapping[tuple[str, str], int]) -> bool:
        return used.get((what, node), 0) < amount(what)
