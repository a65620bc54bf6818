"""`parley explain` and `kubectl parley explain`: flags, formats, and what is said where there is no answer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
import yaml
from tests.unit.cli.serving import Answers, answers_of, served
from tests.unit.scheduler.conftest import World
from typer.testing import CliRunner, Result

from parley.api.exits import Exit
from parley.api.resources import PODS
from parley.cli.failures import end
from parley.cli.main import app, plugin
from parley.kube.client import Client
from parley.simulate.virtual_time import run

Explain = Callable[..., Result]


async def a_cluster(client: Client | None = None) -> Answers:
    """Where one pod runs and another waits, as it is a few minutes later."""
    world = World()
    world.start_kubernetes()
    world.start_parley(client)
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_template("one")
    await world.add_pod("runs", "one")
    await world.settle()
    await world.add_pod("wants", "one")
    for name, place in (("far", "team"), ("wants", "parley-system")):
        await world.client.create(PODS, {"metadata": {"name": name}, "spec": {"containers": []}}, place)
    await world.settle()
    await world.stop()
    return answers_of(world.server)


@pytest.fixture(scope="module")
def answers() -> Answers:
    return run(a_cluster())


@pytest.fixture
def kubeconfig(answers: Answers, tmp_path: Path) -> Iterator[Path]:
    with served(answers, tmp_path) as path:
        yield path


@pytest.fixture
def explain(kubeconfig: Path) -> Explain:
    def invoke(*arguments: str, command: Any = app) -> Result:
        return CliRunner().invoke(command, ["explain", *arguments, "--kubeconfig", str(kubeconfig)])

    return invoke


@pytest.mark.parametrize(
    "arguments", [("pod", "runs"), ("pods", "runs"), ("po/runs",), ("pod/runs", "-n", "default")]
)
def test_a_pod_in_all_the_ways_that_kubectl_users_write(explain: Explain, arguments: tuple[str, ...]) -> None:
    result = explain(*arguments)

    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("Pod default/runs has been bound to a for ")
    assert "allocated on node a: a/gpu-0" in result.stdout


def test_the_plugin_says_the_same(explain: Explain) -> None:
    assert explain("pod", "runs", command=plugin).stdout == explain("pod", "runs").stdout


def test_json_and_yaml_have_the_same_in_them(explain: Explain) -> None:
    (pod,) = orjson.loads(explain("pod", "wants", "-o", "json").stdout)["items"]
    (same,) = yaml.safe_load(explain("pod", "wants", "--output", "yaml").stdout)["items"]

    assert pod["code"] == "NothingViable"
    assert pod["remedies"][0]["pods"] == ["default/runs"]
    assert {**same, "now": "", "remedies": []} == {**pod, "now": "", "remedies": []}


def test_without_a_name_all_that_wait(explain: Explain) -> None:
    assert explain("pods").stdout.splitlines()[0].startswith("Pod default/wants has been waiting for ")
    assert "default/runs is bound" not in explain("pods", "-A").stdout
    assert explain("pods", "-n", "team").stderr == "No pod with Parley claims is waiting in namespace team.\n"


def test_a_name_in_any_namespace(explain: Explain) -> None:
    assert explain("pod", "wants", "-A", "-n", "team").stdout.startswith("Pod default/wants has been waiting")
    assert explain("pod", "none", "-A").stderr == "error: no namespace has a pod none: see `kubectl get pods -A`\n"


def test_a_pod_of_that_name_without_claims_does_not_hide_the_others(explain: Explain) -> None:
    found = explain("pod", "wants", "-A", "-o", "json")

    assert [(pod["namespace"], pod["name"]) for pod in orjson.loads(found.stdout)["items"]] == [
        ("default", "wants")
    ]
    assert explain("pod", "far", "-A").exit_code == Exit.NOT_FOUND


def test_the_namespace_is_that_of_the_context(answers: Answers, tmp_path: Path) -> None:
    with served(answers, tmp_path, namespace="team") as path:
        result = CliRunner().invoke(app, ["explain", "pod", "wants", "--kubeconfig", str(path)])

    assert (result.exit_code, result.stdout) == (6, "")
    assert result.stderr == (
        "error: pod team/wants does not exist: there is one of that name in namespace default (-n default)\n"
    )


def test_without_any_rights(answers: Answers, tmp_path: Path) -> None:
    with served(answers, tmp_path, refused=frozenset({"pods"})) as path:
        result = CliRunner().invoke(app, ["explain", "pod", "wants", "--kubeconfig", str(path)])

    assert result.exit_code == 5
    assert result.stderr.endswith("/pods/wants is forbidden: ask an administrator for that right\n")


def test_without_parley_in_the_cluster(answers: Answers, tmp_path: Path) -> None:
    without = {path: answer for path, answer in answers.items() if "parley.dev" not in path}
    with served(without, tmp_path) as path:
        result = CliRunner().invoke(app, ["explain", "pod", "wants", "--kubeconfig", str(path)])

    assert result.exit_code == 6
    assert result.stderr.startswith("error: Parley is not installed in this cluster, or not completely: ")


def test_without_a_kubeconfig(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["explain", "pod", "wants", "--kubeconfig", str(tmp_path / "none")])

    assert result.exit_code == 4
    assert result.stderr == (
        f"error: kubeconfig {tmp_path / 'none'}, current context: "
        "no such file; name another one with --kubeconfig or KUBECONFIG\n"
    )


def test_a_context_that_does_not_exist(kubeconfig: Path) -> None:
    command = ["explain", "pod", "wants", "--kubeconfig", str(kubeconfig), "--context", "other"]
    result = CliRunner().invoke(app, command)

    assert result.exit_code == 4
    assert result.stderr == (
        f"error: kubeconfig {kubeconfig}, context 'other': there is no context 'other': "
        "choose one with --context (it has c)\n"
    )


@pytest.mark.parametrize("arguments", [("node", "a"), ("pod", "a", "b"), ("pod/a", "b")])
def test_what_can_not_be_explained(explain: Explain, arguments: tuple[str, ...]) -> None:
    result = explain(*arguments)

    assert result.exit_code == 2
    assert "only pods can be explained" in result.stderr


@pytest.mark.parametrize("command", [("explain", "pods"), ("get", "waiting", "-o", "wide")])
def test_what_users_wrote_into_parameters_neither_breaks_the_output_nor_commands_the_terminal(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    async def cluster() -> Answers:
        world = World()
        world.start_kubernetes()
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one", model="[/bold]")
        unknown: dict[str, Any] = {"[/bold]\x1b[2J\r": 1}
        await world.add_template("two", **unknown)
        await world.add_pod("first", "one")
        await world.add_pod("second", "two")
        await world.settle()
        await world.stop()
        return answers_of(world.server)

    with served(run(cluster()), tmp_path) as kubeconfig:
        result = CliRunner().invoke(app, [*command, "--kubeconfig", str(kubeconfig)])

    assert (result.exit_code, result.stderr) == (0, "")
    assert "[/bold]\\x1b[2J\\r=1 is not a parameter" in result.stdout
    assert [line for line in result.stdout.split("\n") if not line.isprintable()] == []


def test_what_an_api_server_says_commands_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        end("pods is forbidden:\n\x1b]0;title\x07", Exit.FORBIDDEN)

    assert capfd.readouterr().err == "error: pods is forbidden:\n\\x1b]0;title\\x07\n"
