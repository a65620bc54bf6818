"""`parley get`: classes, uses and the line of those that wait, as tables and as data."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from tests.unit.cli.serving import Answers, answers_of, served
from tests.unit.scheduler.conftest import World
from typer.testing import CliRunner, Result

from parley.api.exits import Exit
from parley.api.resources import RESOURCE_SLICES
from parley.cli.main import app, plugin
from parley.drivers import built_in
from parley.simulate.virtual_time import run

Get = Callable[..., Result]
PAGE = (Path(__file__).parents[3] / "docs" / "explain.md").read_text()


async def a_cluster() -> Answers:
    """Devices and tokens in use and waited for, some shares of a device, and a driver of somebody else's."""
    world = World()
    world.start_kubernetes()
    world.start_parley(drivers=built_in())
    await world.add_node("a", 2)
    await world.add_node("b", 1, {"disk": "ssd"})
    ssd = {"key": "disk", "operator": "In", "values": ["ssd"]}
    await world.add_class()
    await world.add_class("fast", suitableNodes={"nodeSelectorTerms": [{"matchExpressions": [ssd]}]})
    await world.add_class("licences", driverName="tokens.parley.dev", parameters={"pool": 3})
    await world.add_class("slots", driverName="tokens.parley.dev", parameters={"pool": 2, "scope": "Node"})
    await world.add_class("strange", driverName="disk.example.com")
    await world.add_template("one")
    await world.add_template("two", count=2)
    await world.add_template("licence", "licences", count=2)
    await world.add_template("slot", "slots")
    await world.add_template("strange", "strange")
    await world.add_claim("kept", "fast", mode="Immediate")
    await world.settle()
    for name, templates in (("first", ("one", "licence")), ("second", ("two", "slot")), ("third", ("two",))):
        await world.add_pod(name, *templates)
        await world.settle()
    await world.add_pod("fourth", "strange")
    await world.settle()
    await world.stop()
    return answers_of(world.server)


@pytest.fixture(scope="module")
def answers() -> Answers:
    return run(a_cluster())


@pytest.fixture
def get(answers: Answers, tmp_path: Path) -> Iterator[Get]:
    with served(answers, tmp_path) as kubeconfig:

        def invoke(*arguments: str) -> Result:
            return CliRunner().invoke(plugin, ["get", *arguments, "--kubeconfig", str(kubeconfig)])

        yield invoke


def lines(result: Result) -> list[str]:
    """Without how long ago something was, which is a matter of the day."""
    assert result.exit_code == 0, result.stderr
    return [re.sub(r"\d+ (s|min|h|d)\b", "0 s", line) for line in result.stdout.splitlines()]


def test_what_each_class_has(get: Get) -> None:
    assert lines(get("classes")) == [
        "CLASS     DRIVER             NODES  WHAT     TOTAL  FREE  CLAIMS  WAITING",
        "fast      device.parley.dev  1      devices  1      0     1       0",
        "gpu       device.parley.dev  2      devices  3      1     1       2",
        "licences  tokens.parley.dev  2      tokens   3      1     1       0",
        "slots     tokens.parley.dev  2      tokens   4      4     0       1",
        "strange   disk.example.com   2      -        -      -     0       1",
    ]
    assert get("classes").stdout in PAGE


def test_who_uses_what(get: Get) -> None:
    shown = lines(get("uses"))

    assert [line.split()[:5] for line in shown] == [
        ["NAMESPACE", "POD", "NODE", "CLAIM", "CLASS"],
        ["default", "first", "a", "gpu-0", "gpu"],
        ["default", "first", "a", "gpu-1", "licences"],
        ["default", "-", "b", "kept", "fast"],
    ]
    assert "a/gpu-0" in shown[1]
    assert "pool=licences, node=a, count=2" in shown[2]


def test_who_waits_in_line(get: Get) -> None:
    shown = lines(get("waiting", "-A"))

    assert [line.split()[:3] for line in shown[1:]] == [
        ["default", "second", "NothingViable"],
        ["default", "third", "NothingViable"],
        ["default", "fourth", "DriverNotAnswering"],
    ]
    rows = orjson.loads(get("waiting", "-o", "json").stdout)["items"]
    assert [(row["pod"], row["classes"], row["ahead"]) for row in rows] == [
        ("second", ["gpu", "slots"], 0),
        ("third", ["gpu"], 1),
        ("fourth", ["strange"], 0),
    ]


def test_data_has_every_field_that_is_on_the_page(get: Get) -> None:
    for what in ("classes", "uses", "waiting"):
        data = orjson.loads(get(what, "-o", "json").stdout)
        assert set(data) == {"apiVersion", "kind", "items", "unread", "now"}
        assert [field for field in data["items"][0] if f"`{field}`" not in PAGE] == []


def test_shares_of_devices_are_told_apart(tmp_path: Path) -> None:
    async def cluster() -> Answers:
        world = World()
        world.start_kubernetes()
        world.start_parley()
        await world.add_node("a")
        await world.add_class()
        split = {"name": "gpu-0", "capacity": {"slices": {"value": "4"}}}
        await world.publish("a", [])
        spec = {"driver": "device.parley.dev", "nodeName": "a", "pool": {"name": "a", "generation": 2}}
        await world.create(RESOURCE_SLICES, {"metadata": {"name": "two"}, "spec": {**spec, "devices": [split]}})
        await world.add_template("share", shared=True)
        await world.add_pod("first", "share")
        await world.settle()
        await world.stop()
        return answers_of(world.server)

    with served(run(cluster()), tmp_path) as kubeconfig:
        result = CliRunner().invoke(app, ["get", "classes", "--kubeconfig", str(kubeconfig)])

    assert lines(result)[1].split() == [
        "gpu",
        "device.parley.dev",
        "1",
        "devices",
        "1",
        "0",
        "(+1",
        "partly)",
        "1",
        "0",
    ]


def test_where_there_is_nothing(get: Get) -> None:
    assert get("uses", "-n", "team").stderr == "Nothing is in use in namespace team.\n"
    assert get("waiting", "-n", "team").stderr == "No pod waits in namespace team.\n"


def test_what_may_not_be_read_is_said_on_stderr(answers: Answers, tmp_path: Path) -> None:
    with served(answers, tmp_path, refused=frozenset({"nodes"})) as kubeconfig:
        result = CliRunner().invoke(app, ["get", "classes", "--kubeconfig", str(kubeconfig)])

    assert result.exit_code == 0
    assert result.stderr == "not read: /api/v1/nodes is forbidden\n"


def test_something_else(get: Get) -> None:
    result = get("devices")

    assert result.exit_code == 2
    assert "'devices' is not one of classes, uses, waiting" in result.stderr


async def a_cluster_without_its_controller() -> Answers:
    """The controller has reported on two pods that wait. While it is away, one is replaced, and another comes."""
    world = World()
    world.start_kubernetes()
    world.start_parley()
    await world.add_class()
    await world.add_template("one")
    await world.add_pod("known", "one")
    await world.add_pod("replaced", "one")
    await world.settle()
    await world.crash()
    await world.force_delete("replaced")
    await world.add_pod("replaced", "one")
    await world.settle()
    await world.add_pod("new", "one")
    await world.add_pod("gated", "one", schedulingGates=[{"name": "example.com/not-yet"}])
    await world.settle()
    await world.stop()
    return answers_of(world.server)


def test_a_pod_that_the_controller_has_not_reported_on_waits_too(tmp_path: Path) -> None:
    with served(run(a_cluster_without_its_controller()), tmp_path) as kubeconfig:
        told = CliRunner().invoke(plugin, ["get", "waiting", "--kubeconfig", str(kubeconfig)])
        classes = CliRunner().invoke(plugin, ["get", "classes", "-o", "json", "--kubeconfig", str(kubeconfig)])

    known, *others = lines(told)[1:]
    assert known.split()[:3] == ["default", "known", "NoCandidates"]
    assert [(row.split()[1], *row.split(maxsplit=7)[2:]) for row in sorted(others)] == [
        (name, "-", "0", "s", "gpu", ahead, "the controller has not reported on it yet")
        for name, ahead in (("new", "2"), ("replaced", "1"))
    ]
    assert [row["waiting"] for row in orjson.loads(classes.stdout)["items"]] == [3]


@pytest.mark.parametrize(
    ("command", "nothing"),
    [
        (("get", "waiting"), "No pod waits in namespace default, as far as could be read."),
        (
            ("explain", "pods"),
            "No pod with Parley claims is waiting in namespace default, as far as could be read.",
        ),
    ],
)
def test_pods_that_are_not_read_may_wait(
    answers: Answers, tmp_path: Path, command: tuple[str, str], nothing: str
) -> None:
    with served(answers, tmp_path, refused=frozenset({"pods"})) as kubeconfig:
        told = CliRunner().invoke(plugin, [*command, "--kubeconfig", str(kubeconfig)])

    assert (told.exit_code, told.stdout, told.stderr.splitlines()) == (
        Exit.FORBIDDEN,
        "",
        [nothing, "not read: /api/v1/pods is forbidden", "not read: /api/v1/namespaces/default/pods is forbidden"],
    )


@pytest.mark.parametrize(
    ("kind", "status"), [("resourceclaims", Exit.FORBIDDEN), ("pods", Exit.DONE), ("nodes", Exit.DONE)]
)
def test_what_is_used_is_read_from_claims(answers: Answers, tmp_path: Path, kind: str, status: Exit) -> None:
    with served(answers, tmp_path, refused=frozenset({kind})) as kubeconfig:
        told = CliRunner().invoke(plugin, ["get", "uses", "-o", "json", "--kubeconfig", str(kubeconfig)])

    items = orjson.loads(told.stdout)["items"]
    assert (told.exit_code, [use["pod"] for use in items]) == (status, [] if status else ["first", "first", ""])
