"""`--watch`: what is there, and then what changes; nothing twice."""

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Mapping
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from tests.unit.cli.serving import kubeconfig_of
from tests.unit.scheduler.conftest import SECOND_SCHEDULER, World
from tests.unit.web.refusing import Refusing, forbidden, nothing

from parley.api.resources import NODES
from parley.cli import logs
from parley.cli.explain import _Answer, _Question
from parley.cli.explain import _Printer as ExplanationPrinter
from parley.cli.following import follow
from parley.cli.get import _Chosen, _Printer
from parley.cli.output import Output
from parley.cli.views import USES, WAITING, View
from parley.explain.explaining import explain
from parley.explain.model import Explanation
from parley.explain.overview import waits
from parley.explain.snapshot import Snapshot
from parley.kube.client import Call, Client
from parley.kube.errors import Unreachable
from parley.simulate.virtual_time import run


@pytest.fixture(autouse=True)
def quiet() -> None:
    """As the commands are: nothing is logged."""
    logs.silence()


async def a_world() -> World:
    world = World()
    world.start_kubernetes()
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_template("one")
    await world.add_pod("runs", "one")
    await world.settle()
    return world


async def waiting_while_pods_come(world: World, watch: Awaitable[None], names: tuple[str, ...]) -> None:
    """Pods come one after the other while the command watches."""
    task = asyncio.ensure_future(watch)
    await world.settle()
    for name in names:
        await world.add_pod(name, "one")
        await world.settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await world.stop()


def printed_by(output: Output, capsys: pytest.CaptureFixture[str]) -> list[str]:
    async def story() -> None:
        world = await a_world()
        printer = _Printer(_Chosen(WAITING, "default", lambda _: True), output, headings=True)
        watch = follow(world.server.client(), "default", printer.more)
        await waiting_while_pods_come(world, watch, ("first", "second"))

    run(story())
    return capsys.readouterr().out.splitlines()


def test_rows_are_printed_as_they_come_below_one_heading(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed_by(Output.TEXT, capsys)

    assert [line.split()[1] for line in lines[:2]] == ["POD", "first"]
    assert [line.split()[1] for line in lines].count("POD") == 1
    assert [line.split()[1] for line in lines][-1] == "second"


def test_names_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(dict.fromkeys(printed_by(Output.NAME, capsys))) == ["pod/first", "pod/second"]


def test_an_explanation_is_printed_again_when_it_is_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        world = await a_world()
        question = _Question("default", "", False, lambda _: True)
        watch = question.follow(world.server.client(), ExplanationPrinter(Output.JSON, "anywhere"))
        await waiting_while_pods_come(world, watch, ("first", "second"))

    run(story())
    documents = capsys.readouterr().out.strip().replace("\n}\n{", "\n}\0{").split("\0")
    items = [orjson.loads(document)["items"] for document in documents]
    assert items[0] == []
    assert [pod["name"] for pod in items[-1]] == ["first", "second"]
    timeless = [[{**pod, "now": ""} for pod in pods] for pods in items]
    assert all(before != after for before, after in pairwise(timeless))


def test_a_running_pod_is_explained_with_its_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        world = await a_world()
        question = _Question("default", "runs", False, lambda _: True)
        watch = question.follow(world.server.client(), ExplanationPrinter(Output.TEXT, "anywhere"))
        await waiting_while_pods_come(world, watch, ())

    run(story())
    assert "NODE  gpu-0\na     viable  selected" in capsys.readouterr().out


def selected(labels: Mapping[str, str]) -> bool:
    """As by `-l app=test`, which all of the world's pods have."""
    return labels.get("app") == "test"


@pytest.mark.parametrize("view", [WAITING, USES], ids=["waiting", "uses"])
def test_pods_are_selected_by_their_labels(view: View, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        world = await a_world()
        printer = _Printer(_Chosen(view, "default", selected), Output.NAME, headings=True)
        await waiting_while_pods_come(world, follow(world.server.client(), "default", printer.more), ("first",))

    run(story())
    assert set(capsys.readouterr().out.split()) == {"pod/first" if view is WAITING else "pod/runs"}


def test_what_its_scheduler_says_of_a_pod_is_told_as_without_watching() -> None:
    async def story() -> tuple[Explanation, Snapshot]:
        world = await a_world()
        await world.add_pod("big", "one", schedulerName=SECOND_SCHEDULER, nodeSelector={"none": "such"})
        await world.settle()
        worlds: list[Snapshot] = []

        async def keep(found: Snapshot) -> None:
            worlds.append(found)

        await waiting_while_pods_come(world, follow(world.server.client(), "default", keep), ())
        return await explain(world.client, world.clock(), "default", "big"), worlds[-1]

    told, found = run(story())
    (row,) = waits(found, None)
    assert "found no node by its own filters" in told.message
    assert (row.code, row.message) == (told.code, told.message)


def test_that_time_passes_is_no_other_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """It says how long ago pods in the way were made."""

    async def story() -> None:
        world = await a_world()
        await world.add_pod("waits", "one")
        await world.settle()
        printer = ExplanationPrinter(Output.TEXT, "anywhere")
        for _ in range(3):
            answer = _Answer([await explain(world.client, world.clock(), "default", "waits")])
            printer.print_if_new(answer)
            await asyncio.sleep(100)
        await world.stop()

    run(story())
    out = capsys.readouterr().out
    assert out.count("Pod default/waits has been waiting") == 1
    assert "is free when pod default/runs ends (holds gpu-0, created 2 min ago)" in out


def test_a_watch_that_is_ended_while_something_changes_ends() -> None:
    async def story() -> None:
        world = await a_world()
        watch = asyncio.ensure_future(follow(world.server.client(), "default", lambda _: asyncio.sleep(0)))
        await world.settle()
        await world.add_node("b")
        watch.cancel()
        await asyncio.wait([watch], timeout=10)
        assert watch.cancelled()
        await world.stop()

    run(story())


def test_what_may_not_be_read_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(call: Call) -> Exception | None:
        return forbidden(call) if call.resource == NODES else None

    async def story() -> None:
        world = await a_world()
        printer = _Printer(_Chosen(WAITING, "default", lambda _: True), Output.TEXT, headings=True)
        watch = follow(Refusing(world.server.client(), refuse), "default", printer.more)
        await waiting_while_pods_come(world, watch, ("first", "second"))

    run(story())
    assert capsys.readouterr().err == "not read: nodes is forbidden at the cluster scope\n"


def test_a_server_that_takes_long_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    class Slow(Client):
        async def request(self, call: Call) -> bytes:
            await asyncio.sleep(25)
            return await super().request(call)

    async def story() -> None:
        world = await a_world()
        printer = _Printer(_Chosen(WAITING, "default", lambda _: True), Output.NAME, headings=True)
        await waiting_while_pods_come(
            world, follow(Slow(world.server.client()), "default", printer.more), ("first",)
        )

    run(story())
    assert set(capsys.readouterr().out.split()) == {"pod/first"}


def test_a_server_that_goes_away_is_said_and_that_it_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        world = await a_world()
        client = Refusing(world.server.client())
        printer = _Printer(_Chosen(WAITING, "default", lambda _: True), Output.NAME, headings=True)
        task = asyncio.ensure_future(follow(client, "default", printer.more))
        await world.settle()
        client.refuse = lambda _: Unreachable("list", "http://api", "connection refused")
        world.server.end_watches()
        await world.settle()
        client.refuse = nothing
        await waiting_while_pods_come(world, task, ("first",))

    run(story())
    told = capsys.readouterr()
    assert set(told.out.split()) == {"pod/first"}
    away, *back = told.err.splitlines()
    assert away.startswith("may be old: http://api does not answer: connection refused: ")
    assert back == ["up to date again"]


@pytest.mark.parametrize("command", [("get", "waiting", "-w"), ("explain", "pods")])
async def test_ctrl_c_ends_it_without_a_traceback(command: tuple[str, ...], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        path = kubeconfig_of(tmp_path / "config", silent.getsockname()[1], "default")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "parley", *command, "--kubeconfig", str(path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        asked, _ = await asyncio.get_running_loop().sock_accept(silent)
        process.send_signal(signal.SIGINT)
        out, errors = await process.communicate()
        asked.close()
    assert (process.returncode, out, errors.strip()) == (130, b"", b"")
