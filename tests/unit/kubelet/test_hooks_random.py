"""Random lives of claims of a driver with effects: hooks fail, the process dies, the machine restarts, two plugins
run.

What must always hold: what the kubelet holds for prepared is open, and was opened in this boot of the machine;
what is open is recorded, so that somebody will close it; one port is never two claims'.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.kubelet.drivers import PortNode, Ports

from parley.api.resources import BUILTIN_CLAIMS
from parley.kube.memory import MemoryServer
from parley_kubelet.claims.orphans import release_orphans
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.hooks import HeldClaim, NodeClaim, Prepared, Refused
from parley_kubelet.state.checkpoint import Entries


class Switch:
    """What is outside of the process: ports that are open, lost when the machine restarts. The next hook fails or
    the process dies, before or after its effect, if `trouble` says so."""

    def __init__(self) -> None:
        self.open: dict[int, str] = {}
        self.trouble: tuple[type[BaseException], bool] | None = None


class Killed(BaseException):
    """The plugin's process is gone, in the middle of a hook."""


class SwitchPorts(Ports):
    def __init__(self, switch: Switch) -> None:
        super().__init__()
        self._switch = switch

    async def prepare(self, claim: NodeClaim[Any]) -> Prepared:
        await self._effect(lambda: self._switch.open.__setitem__(claim.handle.number, claim.uid))
        return Prepared(state={"number": claim.handle.number})

    async def unprepare(self, held: HeldClaim[Any]) -> None:
        number = held.claim.handle.number
        if self._switch.open.get(number) in (held.claim.uid, None):
            await self._effect(lambda: self._switch.open.pop(number, None))

    async def _effect(self, effect: Any) -> None:
        trouble, self._switch.trouble = self._switch.trouble, None
        if trouble is None or trouble[1]:
            effect()
        if trouble is not None:
            raise trouble[0]("in the middle")


TROUBLE = st.none() | st.tuples(st.sampled_from([RuntimeError, Killed]), st.booleans())


class ClaimsOfASwitch(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="pk-", dir="/tmp"))
        self.node = PortNode(MemoryServer().client(), self.folder)
        self.switch = Switch()
        self.boot = self.made = 0
        self.claims: list[ClaimName] = []
        self.answered: set[str] = set()
        """UIDs of the claims that the kubelet holds for prepared."""
        self.restart()

    def teardown(self) -> None:
        self.runner.close()
        shutil.rmtree(self.folder)

    def entries(self) -> Entries:
        return self.runner.run(self.plugins[0].entries())

    @rule()
    def restart(self) -> None:
        """Both plugins start anew; whatever they were doing is lost."""
        self.plugins: tuple[Preparation, ...] = tuple(
            self.node.plugin(SwitchPorts(self.switch), boot=f"boot {self.boot}") for _ in range(2)
        )

    @rule()
    def restart_machine(self) -> None:
        self.boot += 1
        self.switch.open.clear()
        self.answered.clear()
        self.restart()

    @rule()
    def look_for_orphans(self) -> None:
        self.switch.trouble = None
        self.runner.run(release_orphans(self.plugins[0], self.node.client))

    @rule(number=st.integers(1, 3))
    def allocate(self, number: int) -> None:
        self.made += 1
        name = f"c{self.made}"
        self.claims.append(self.runner.run(self.node.claim(name, number, f"port-{number}")))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """The claim goes; the kubelet unprepares it all the same, if it had prepared it."""
        claim = data.draw(st.sampled_from(self.claims))
        if claim.uid not in self.answered:
            self.claims.remove(claim)
            self.runner.run(self.node.client.delete(BUILTIN_CLAIMS, claim.name, claim.namespace))
            if claim.uid in self.entries():
                self.attempt(self.plugins[0].unprepare(claim), None)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), plugin=st.integers(0, 1), trouble=TROUBLE)
    def prepare(self, data: st.DataObject, plugin: int, trouble: Any) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        if self.attempt(self.plugins[plugin].prepare(claim), trouble):
            self.answered.add(claim.uid)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), plugin=st.integers(0, 1), trouble=TROUBLE)
    def unprepare(self, data: st.DataObject, plugin: int, trouble: Any) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        self.answered.discard(claim.uid)
        if self.attempt(self.plugins[plugin].unprepare(claim), trouble):
            assert claim.uid not in self.entries()
            assert claim.uid not in self.switch.open.values()

    def attempt(self, work: Any, trouble: Any) -> bool:
        """Whether it succeeded. After a kill everything starts anew."""
        self.switch.trouble = trouble
        try:
            self.runner.run(work)
        except (RuntimeError, Refused):
            return False
        except Killed:
            self.restart()
            return False
        finally:
            self.switch.trouble = None
        return True

    @invariant()
    def what_the_kubelet_holds_for_prepared_is_open(self) -> None:
        entries = self.entries()
        for uid in self.answered:
            assert (entries[uid].phase, entries[uid].boot) == ("prepared", f"boot {self.boot}")
            assert self.switch.open[entries[uid].handle["number"]] == uid

    @invariant()
    def what_is_open_is_recorded(self) -> None:
        assert set(self.switch.open.values()) <= set(self.entries())

    @invariant()
    def a_port_is_one_claims(self) -> None:
        numbers = [entry.handle["number"] for entry in self.entries().values()]
        assert len(numbers) == len(set(numbers))


TestClaimsOfASwitch = ClaimsOfASwitch.TestCase
TestClaimsOfASwitch.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
