"""Random lives of pods with claims for standalone drivers and embedded ones.

Controller and drivers are killed, their watches lag, answers to their writes are lost and writes arrive late; pods
and claims are deleted and made again under the same names, nodes fail and are cordoned, a class is given
to another driver. No resource is used twice at any moment; at the end who can run does, only what runs is held,
and nothing is left when the pods are gone.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.soak.rules.quiescence import remembered
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.standalone_lives.drivers import (
    Disks,
    EmbeddedLender,
    Lender,
    OtherLender,
    Provider,
    Vaults,
)
from tests.unit.scheduler.standalone_lives.kinds import (
    BORROWERS,
    IMMEDIATE,
    KINDS,
    MOST_VAULTS,
    NAMED,
    NODE_NAMES,
    SEATS,
    VAULTS,
)
from tests.unit.scheduler.standalone_lives.trouble import Trouble, TroubleClient
from tests.unit.scheduler.standalone_lives.use import Use

from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS, CLASSES, NODES, POD_SCHEDULINGS, PODS
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import ApiError, Client

ACTIONS: Mapping[str, int] = {
    "add": 6,
    "delete": 3,
    "force_delete": 1,
    "make_again": 1,
    "finish": 1,
    "kill_controller": 1,
    "kill_tokens": 1,
    "kill_disks": 1,
    "kill_lenders": 1,
    "change_class": 2,
    "replace_class": 1,
    "kill_all": 1,
    "clear_mirror": 1,
    "delete_mirror": 1,
    "delete_scheduling": 1,
    "make_claim_again": 1,
    "make_vault_again": 2,
    "cordon": 1,
    "break_disk": 1,
    "lose_writes": 1,
    "lag": 1,
    "calm": 1,
    "wait": 3,
}
"""How often each is chosen: methods of `Life`, without the underscore."""


class Life:
    """One random life; `log` is what happened, for whoever looks at a failure."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self._trouble = Trouble(self._chance)
        self._provider = Provider()
        self._lent: dict[str, set[str]] = {}
        self._tokens = TokensDriver()
        self._seconds = self._chance.choice((0.0, 3.0, 30.0))
        self._pods: dict[str, str] = {}
        self._use = Use(world, self._pods, self._lent)
        self._made = 0
        self.log: list[str] = []

    async def play(self, steps: int) -> None:
        """Begin, make that many steps, come to rest, and end. Asserts on the way."""
        await self._begin()
        for _ in range(steps):
            (action,) = self._chance.choices(list(ACTIONS), list(ACTIONS.values()))
            self._note(action)
            try:
                await getattr(self, f"_{action}")()
            except ApiError as error:
                self._note(f"  {error}")
            await asyncio.sleep(self._chance.choice((0, 0, 0.01, 0.2, 1, 3)))
            await self._use.check()
        await self._rest()
        await self._use.check()
        await self._use.check_waiting()
        await self._use.check_lent()
        await self._end()

    def _note(self, text: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():.2f} {text}")

    async def _begin(self) -> None:
        world = self._world
        for node in NODE_NAMES:
            await world.add_node(node, devices=1)
        await world.add_class()
        await world.add_template()
        for name, driver, parameters in (
            ("seat", TokensDriver.name, {"pool": SEATS, "scope": "Node"}),
            ("seats", TokensDriver.name, {"pool": 1, "scope": "Node"}),
            ("disk", Disks.name, {}),
            ("loan", Lender.name, {}),
            ("vault", Vaults.name, {}),
        ):
            more: dict[str, Any] = {"nodePart": "None"} if parameters or name in ("loan", "vault") else {}
            if name == "vault":
                more["limits"] = [{"claims": MOST_VAULTS}]
            await world.add_class(name, shareable=name == "seats", parameters=parameters, **more)
            await world.client.patch(CLASSES, name, {"driverName": driver})
        for name in ("seat", "disk", "loan"):
            await world.add_template(name, name)
        await self._make_claims()
        self._start_controller()
        self._start_tokens()
        self._start_disks()
        self._start_lenders()
        await asyncio.sleep(1)

    async def _make_claims(self) -> None:
        for name in (*NAMED, *VAULTS):
            with suppress(ApiError):
                await self._make_claim(name)

    async def _make_claim(self, name: str) -> None:
        mode = "Immediate" if name in (IMMEDIATE, *VAULTS) else ""
        await self._world.add_claim(name, "vault" if name in VAULTS else NAMED[name][0], mode)

    # -- processes

    def _client(self) -> Client:
        return TroubleClient(self._world.server.client(), self._trouble)

    def _start_controller(self) -> None:
        self._controller = self._world.start_parley(
            self._client(), drivers=[DeviceDriver(), EmbeddedLender(self._lent)]
        )

    def _start_tokens(self) -> None:
        self._tokens = TokensDriver()
        self._tokens_process = self._world.start_driver(self._tokens, self._client())

    def _start_disks(self) -> None:
        self._disks_process = self._world.start_driver(Disks(self._provider, self._seconds), self._client())

    def _start_lenders(self) -> None:
        lenders = (Lender(self._lent, self._seconds), OtherLender(self._lent, 1.0), Vaults(self._lent, 1.0))
        self._lenders = [self._world.start_driver(lender, self._client()) for lender in lenders]

    async def _kill(self, process: asyncio.Task[None], *, away: Sequence[float] = (0, 1, 5, 40)) -> None:
        self._world.killed.add(process)
        process.cancel()
        await asyncio.gather(process, return_exceptions=True)
        await asyncio.sleep(self._chance.choice(away))

    async def _kill_controller(self) -> None:
        await self._kill(self._controller, away=(0, 1, 5))
        self._start_controller()

    async def _kill_tokens(self) -> None:
        await self._kill(self._tokens_process)
        self._start_tokens()

    async def _kill_disks(self) -> None:
        await self._kill(self._disks_process)
        self._start_disks()

    async def _kill_lenders(self) -> None:
        for process in self._lenders:
            await self._kill(process)
        self._start_lenders()

    async def _kill_all(self) -> None:
        for process in (self._controller, self._tokens_process, self._disks_process):
            await self._kill(process, away=(0, 1))
        self._start_disks()
        self._start_tokens()
        await asyncio.sleep(self._chance.choice((0, 1, 5)))
        self._start_controller()

    async def _lose_writes(self) -> None:
        self._trouble.lost = self._chance.choice((0.1, 0.4))

    async def _lag(self) -> None:
        self._trouble.lag = self._chance.choice((0.3, 3.0))

    async def _calm(self) -> None:
        self._trouble.lost = self._trouble.lag = 0.0

    async def _wait(self) -> None:
        await asyncio.sleep(self._chance.choice((1, 5, 40)))

    # -- pods and claims

    async def _change_class(self) -> None:
        """It is another driver's from now on, perhaps while the former one lends."""
        await self._borrow()
        await self._world.client.patch(CLASSES, "loan", {"driverName": self._some_lender()})

    async def _replace_class(self) -> None:
        await self._borrow()
        await self._world.client.delete(CLASSES, "loan")
        await asyncio.sleep(self._chance.choice((0, 0.1, 2)))
        await self._world.add_class("loan", driverName=self._some_lender(), nodePart="None")

    async def _borrow(self) -> None:
        self._made += 1
        await self._add_pod(f"p{self._made}", self._chance.choice(BORROWERS))
        await asyncio.sleep(self._chance.choice((0.1, 1, 3)))

    def _some_lender(self) -> str:
        name = self._chance.choice((Lender.name, OtherLender.name, EmbeddedLender.name))
        self._note(f"  {name}")
        return name

    async def _add(self) -> None:
        self._made += 1
        await self._add_pod(f"p{self._made}")

    async def _add_pod(self, name: str, kind: str = "") -> None:
        kind = kind or self._chance.choice(sorted(KINDS))
        templates, claims = KINDS[kind]
        self._note(f"  {name} {kind}")
        await self._world.add_pod(name, *templates, claims=claims)
        self._pods[name] = kind

    def _some(self) -> str:
        """A pod that was added; "" if there is none."""
        name = self._chance.choice(sorted(self._pods)) if self._pods else ""
        self._note(f"  {name}")
        return name

    async def _delete(self) -> None:
        if name := self._some():
            del self._pods[name]
            await self._world.delete_pod(name)

    async def _force_delete(self) -> None:
        if name := self._some():
            del self._pods[name]
            await self._world.force_delete(name)

    async def _make_again(self) -> None:
        """An unbound pod is deleted, and another one gets its name."""
        if (name := self._some()) and not (await self._world.pod(name)).spec.node_name:
            del self._pods[name]
            await self._world.force_delete(name)
            await self._add_pod(name)

    async def _finish(self) -> None:
        if (name := self._some()) and (await self._world.pod(name)).status.phase == "Running":
            await self._world.finish_pod(name)

    async def _some_mirror(self) -> str:
        names = sorted(mirror.metadata.name for mirror in await self._world.mirrors())
        return self._chance.choice(names) if names else ""

    async def _clear_mirror(self) -> None:
        """As a scheduler does for unbound pods."""
        if not (name := await self._some_mirror()):
            return
        mirror = await self._world.client.get(BUILTIN_CLAIMS, name, "default")
        users = [await self._world.pod(user.name) for user in mirror.status.reserved_for]
        if not any(user.spec.node_name for user in users):
            nothing = {"allocation": None, "reservedFor": None, "devices": None}
            body = {"metadata": {"resourceVersion": mirror.metadata.resource_version}, "status": nothing}
            await self._world.client.patch(BUILTIN_CLAIMS, name, body, "default", subresource="status")

    async def _delete_mirror(self) -> None:
        """Not while no controller has seen it: what a running pod holds is not known then, only its node plugin
        keeps it from others."""
        assert self._world.controller is not None
        await self._world.controller.ready.wait()
        if name := await self._some_mirror():
            await self._world.client.delete(BUILTIN_CLAIMS, name, "default")

    async def _delete_scheduling(self) -> None:
        if name := self._some():
            await self._world.client.delete(POD_SCHEDULINGS, name, "default")

    async def _make_claim_again(self) -> None:
        await self._make_again_named(self._chance.choice(sorted(NAMED)))

    async def _make_vault_again(self) -> None:
        await self._make_again_named(self._chance.choice(VAULTS))

    async def _make_again_named(self, name: str) -> None:
        with suppress(ApiError):
            await self._world.client.delete(CLAIMS, name, "default")
        await asyncio.sleep(self._chance.choice((0, 0.1, 2)))
        await self._make_claim(name)

    # -- nodes

    async def _cordon(self) -> None:
        """Or uncordon."""
        unschedulable = self._chance.choice((True, None))
        await self._set_unschedulable(self._chance.choice(NODE_NAMES), unschedulable)

    async def _set_unschedulable(self, node: str, value: bool | None) -> None:
        await self._world.client.patch(NODES, node, {"spec": {"unschedulable": value}})

    async def _break_disk(self) -> None:
        """Or mend it."""
        self._provider.broken ^= {self._chance.choice(NODE_NAMES)}

    # -- the end

    async def _rest(self) -> None:
        """Nobody interferes any more."""
        await self._calm()
        self._provider.broken.clear()
        for node in NODE_NAMES:
            await self._set_unschedulable(node, None)
        for _ in range(2):  # an earlier claim may be on its way out
            await self._make_claims()
            for pod in await self._use.living():
                # as what a scheduler finds after five minutes, which its model leaves out
                await self._world.change_pod(pod.metadata.name)
            await self._settle()

    async def _settle(self) -> None:
        """Until nothing changes for 1,500 s but what a scheduler says of pods that it tries again and again: it
        does so without an end where a claim is in use and it is not told."""
        for _ in range(16):
            self._world.raise_failures()
            before = await self._state()
            await asyncio.sleep(1500)
            if await self._state() == before:
                return
        raise AssertionError("never quiet")

    async def _state(self) -> list[object]:
        client = self._world.client
        objects: list[Any] = [
            *(await client.list(CLAIMS)).items,
            *(await client.list(BUILTIN_CLAIMS)).items,
            *(await client.list(POD_SCHEDULINGS)).items,
            *(await client.list(CLAIM_RELEASES)).items,
        ]
        versions: list[object] = [(type(one), one.metadata.name, one.metadata.resource_version) for one in objects]
        pods = (await client.list(PODS)).items
        return versions + [(one.metadata.uid, one.spec.node_name, one.status.phase) for one in pods]

    async def _end(self) -> None:
        """All pods are deleted: nothing may be left."""
        world = self._world
        for pod in (await world.client.list(PODS, "default")).items:
            await world.delete_pod(pod.metadata.name)
        for name in (IMMEDIATE, *VAULTS):
            await world.client.delete(CLAIMS, name, "default")
        await self._settle()
        assert self._provider.held == {}
        assert self._tokens._held == {}
        assert not any(self._lent.values())
        assert {mirror.metadata.name for mirror in await world.mirrors()} <= NAMED.keys()
        claims = (await world.client.list(CLAIMS)).items
        assert {claim.metadata.name for claim in claims} <= NAMED.keys()
        assert all((claim.status.allocation, claim.status.reserved_for) == (None, ()) for claim in claims)
        assert not (await world.client.list(POD_SCHEDULINGS)).items
        assert len(world.ledger) == 0
        assert world.controller is not None
        if found := list(remembered(world.controller)):
            raise AssertionError("; ".join(found))
