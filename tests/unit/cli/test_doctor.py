"""`parley doctor` as a command: text, data, exit status, and what it says where nothing can be read."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.unit.cli.serving import Answers, answers_of, served
from tests.unit.doctor.healthy import NOW, fill
from typer.testing import CliRunner, Result

from parley.api.resources import BUILTIN_CLAIMS, SERVER_VERSION, Resource
from parley.cli.main import app, plugin
from parley.doctor.facts import EVERYWHERE, IN_NAMESPACE, OURS
from parley.kube.memory import MemoryServer
from parley.simulate.virtual_time import run

KINDS = (*EVERYWHERE, *IN_NAMESPACE)


async def a_cluster() -> Answers:
    server = MemoryServer()
    await fill(server.client())
    return {**answers_of(server, KINDS), SERVER_VERSION.path(): orjson.dumps({"gitVersion": "v1.37.0"})}


@pytest.fixture(scope="module")
def answers() -> Answers:
    return run(a_cluster())


def doctor(answers: Answers, place: Path, *arguments: str, command: Any = app, **options: Any) -> Result:
    with served(answers, place, **options) as path:
        return CliRunner().invoke(command, ["doctor", *arguments, "--kubeconfig", str(path)])


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease of the cluster was renewed just now."""
    monkeypatch.setattr("parley.cli.doctor.utc", lambda: NOW)


@pytest.mark.usefixtures("now")
def test_all_well(answers: Answers, tmp_path: Path) -> None:
    result = doctor(answers, tmp_path, command=plugin)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0].split() == ["ok", "api-server", "Kubernetes", "v1.37.0"]
    assert "All well" in result.stdout.splitlines()[-1]


@pytest.mark.usefixtures("now")
def test_a_fault_is_told_with_its_remedy_and_status_8(answers: Answers, tmp_path: Path) -> None:
    without = {path: answer for path, answer in answers.items() if "/leases" not in path}
    leases = "/apis/coordination.k8s.io/v1/namespaces/parley-system/leases"
    without |= {leases: b'{"metadata": {"resourceVersion": "1"}, "items": []}'}

    result = doctor(without, tmp_path)

    assert result.exit_code == 8
    assert result.stdout.splitlines()[-1] == "1 error."
    at = next(n for n, line in enumerate(result.stdout.splitlines()) if line.startswith("error"))
    assert result.stdout.splitlines()[at : at + 2] == [
        "error    leader          Lease parley-system/parley-controller: is missing: no controller has ever "
        "led here",
        "                         -> see the controllers' logs: kubectl -n parley-system logs "
        "-l app.kubernetes.io/name=parley-controller",
    ]


@pytest.mark.usefixtures("now")
def test_what_may_not_be_read_is_a_finding_and_status_9(answers: Answers, tmp_path: Path) -> None:
    result = doctor(answers, tmp_path, "-o", "json", refused=frozenset({"flowschemas"}))

    assert result.exit_code == 9
    data = orjson.loads(result.stdout)
    assert (data["apiVersion"], data["kind"], data["verdict"]) == (
        "cli.parley.dev/v1alpha1",
        "Diagnosis",
        "unknown",
    )
    (finding,) = [item for item in data["items"] if item["severity"] != "ok"]
    assert finding == {
        "check": "lane",
        "severity": "unknown",
        "about": "",
        "finding": "could not be checked: /apis/flowcontrol.apiserver.k8s.io/v1/flowschemas is forbidden",
        "remedy": "ask an administrator for the right to get and list flowschemas.flowcontrol.apiserver.k8s.io, "
        "or let one run it",
    }


def test_where_nothing_is_installed(tmp_path: Path) -> None:
    result = doctor({SERVER_VERSION.path(): orjson.dumps({"gitVersion": "v1.37.0"})}, tmp_path)

    assert result.exit_code == 8
    assert "Parley is not installed in this cluster: the API server knows none of its kinds" in result.stdout


def test_where_no_api_server_answers(tmp_path: Path) -> None:
    with served({}, tmp_path) as path:
        pass
    result = CliRunner().invoke(app, ["doctor", "--kubeconfig", str(path)])

    assert (result.exit_code, result.stdout) == (3, "")
    host = orjson.loads(path.read_bytes())["clusters"][0]["cluster"]["server"]
    assert result.stderr == (
        f"error: {host} does not answer: connection refused: check whether the API server runs and can be "
        "reached, or choose another one with --context or --kubeconfig\n"
    )


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_nothing_is_said_to_be_well_of_a_kind_that_is_not_served(
    answers: Answers, tmp_path: Path, kind: Resource[Any]
) -> None:
    group = kind.path().rsplit("/", 1)[0]
    rest = {
        path: it for path, it in answers.items() if not (path.startswith(group) and kind.plural in path.split("/"))
    }

    result = doctor(rest, tmp_path, "-o", "json")

    told = orjson.loads(result.stdout)["items"]
    assert f"could not be checked: the API server knows no {kind.plural}" in result.stdout
    assert result.exit_code in (8, 9)
    (all_decoded,) = {one["severity"] for one in told if one["check"] == "undecodable"}
    assert all_decoded == ("unknown" if kind in (*OURS, BUILTIN_CLAIMS) else "ok")
