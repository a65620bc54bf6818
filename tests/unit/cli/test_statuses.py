"""Each situation that a user can get a command into has an exit status of its own, and a sentence: word by word.

What is this machine's own is replaced: folders, ports. docs/cli.md has the statuses.
"""

import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.unit.cli.serving import KINDS, Answers, answers_of, served
from tests.unit.scheduler.conftest import World
from typer.testing import CliRunner

from parley.api.exits import Exit
from parley.cli.main import app, plugin
from parley.simulate.virtual_time import run

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cli.md").read_text()

CLUSTER = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
CONTEXT = {"name": "c", "context": {"cluster": "c", "user": "u"}}
USER = {"name": "u", "user": {"token": "t"}}
CONFIG = {"clusters": [CLUSTER], "contexts": [CONTEXT], "users": [USER], "current-context": "c"}


def config(**parts: Any) -> str:
    return yaml.safe_dump({**CONFIG, **parts})


def user(**fields: Any) -> str:
    return config(users=[{"name": "u", "user": fields}])


def cluster(**fields: Any) -> str:
    return config(clusters=[{"name": "c", "cluster": {**CLUSTER["cluster"], **fields}}])  # type: ignore[dict-item]


def golden(text: str, place: Path) -> str:
    """Without what is this machine's own."""
    return re.sub(r"127\.0\.0\.1:\d+", "HOST", text.replace(str(place), "FOLDER"))


def said(place: Path, *command: str, program: Any = app, stdin: str = "") -> tuple[int, str]:
    """The exit status, and what was printed."""
    result = CliRunner().invoke(program, list(command), input=stdin, env={"COLUMNS": "80"})
    return result.exit_code, golden(result.output, place)


CURRENT = "error: kubeconfig FOLDER/config, current context: "
KUBECONFIGS: Mapping[str, tuple[str, str]] = {
    "not YAML": (
        "a: [",
        "FOLDER/config, line 1, column 5 is not YAML: correct it, or name another one with --kubeconfig or "
        "KUBECONFIG",
    ),
    "something else": (
        "just text",
        "FOLDER/config is not a kubeconfig: it has no clusters, users and contexts; "
        "name another one with --kubeconfig or KUBECONFIG",
    ),
    "no current context": (
        config(**{"current-context": ""}),
        "it has no current-context: choose one with --context (it has c)",
    ),
    "a current context that is gone": (
        config(**{"current-context": "old"}),
        "there is no context 'old': choose one with --context (it has c)",
    ),
    "a user that is gone": (
        config(users=[]),
        "the context names user 'u', which it does not have: correct the file",
    ),
    "a cluster without an address": (
        config(clusters=[{"name": "c", "cluster": {}}]),
        "the context's cluster has no `server`: correct the file",
    ),
    "an address that is none": (
        cluster(server="api.example.com"),
        "the cluster's server 'api.example.com' is not an address such as https://10.0.0.1:6443: correct the file",
    ),
    **{
        f"an address that is none: {server}": (
            cluster(server=server),
            f"the cluster's server {server!r} is not an address such as https://10.0.0.1:6443: correct the file",
        )
        for server in ("https://", "https://host:64430000", "https://host:api", "https://[::1", "https://a..b")
    },
    "an authority that is gone": (
        cluster(**{"certificate-authority": "ca.crt"}),
        "the cluster's certificate-authority ca.crt does not exist: correct the file, or name another one with "
        "--kubeconfig or KUBECONFIG",
    ),
    "a certificate that is broken": (
        user(**{"client-certificate-data": "%%%"}),
        "the user's client-certificate-data is not base64: correct the file, or name another one with "
        "--kubeconfig or KUBECONFIG",
    ),
    "a credential plugin that is missing": (
        user(exec={"command": "no-such-login", "installHint": "see\nhttps://example.com"}),
        "user 'u' gets credentials from the program no-such-login, which is not there: install it "
        "(see https://example.com), or choose another context with --context",
    ),
    "a credential plugin that fails": (
        user(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "false", "args": ["get-token"]}),
        "`false get-token` gave no credentials: run it yourself to see why",
    ),
}


@pytest.mark.parametrize("case", KUBECONFIGS)
def test_a_kubeconfig_that_cannot_be_used(case: str, tmp_path: Path) -> None:
    text, sentence = KUBECONFIGS[case]
    (tmp_path / "config").write_text(text)

    status, output = said(tmp_path, "get", "classes", "--kubeconfig", str(tmp_path / "config"))

    assert (status, output) == (Exit.NO_ACCESS, f"{CURRENT}{sentence}\n")


@pytest.mark.parametrize("command", [("explain", "pod", "a"), ("get", "uses"), ("doctor",)])
def test_an_api_server_that_is_away(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "config").write_text(config())

    assert said(tmp_path, *command, "--kubeconfig", str(tmp_path / "config")) == (
        Exit.NO_ANSWER,
        "error: http://HOST does not answer: connection refused: check whether the API server runs and can be "
        "reached, or choose another one with --context or --kubeconfig\n",
    )


NO_API_SERVER = (
    "error: what answers is not a Kubernetes API server: check whether the kubeconfig has the right address, or "
    "choose another one with --context or --kubeconfig\n"
)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (("get", "classes"), "/apis/parley.dev/v1alpha1/resourceclasses"),
        (("doctor",), "/version"),
        (("explain", "pod", "a"), "/api/v1/namespaces/default/pods/a"),
    ],
)
def test_something_else_that_answers(command: tuple[str, ...], path: str, tmp_path: Path) -> None:
    every = {kind.path(): b'{"items": []}' for kind in KINDS}
    with served({**every, path: b"<html>nginx</html>"}, tmp_path) as config_:
        assert said(tmp_path, *command, "--kubeconfig", str(config_)) == (Exit.NO_ANSWER, NO_API_SERVER)


@pytest.mark.parametrize(
    "command",
    [("get", "classes"), ("doctor",), ("explain", "pod", "a"), ("uninstall", "--check")],
)
def test_a_server_of_web_pages(command: tuple[str, ...], tmp_path: Path) -> None:
    """Its 404 does not mean that there are no claims."""
    with served({}, tmp_path, absent=b"<!DOCTYPE html><h1>404</h1>") as config_:
        assert said(tmp_path, *command, "--kubeconfig", str(config_)) == (Exit.NO_ANSWER, NO_API_SERVER)


def test_whether_claims_are_in_use_is_not_known_without_the_kind(tmp_path: Path) -> None:
    own = {kind.path(): b'{"items": []}' for kind in KINDS if kind.group == "parley.dev"}
    with served(own, tmp_path) as config_:
        assert said(tmp_path, "uninstall", "--check", "--kubeconfig", str(config_)) == (
            Exit.FAILED,
            "error: the API server does not serve resourceclaims of resource.k8s.io/v1, so it is not known"
            " whether claims are in use: start it with --runtime-config=resource.k8s.io/v1=true, or choose another"
            " one with --context\n",
        )


def usage(command: str, arguments: str, message: str) -> str:
    return f"Usage: {command} {arguments}\nTry '{command} -h' for help.\n\nError: {message}\n"


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["nonsense"], usage("parley", "[OPTIONS] COMMAND [ARGS]...", "No such command 'nonsense'.")),
        (
            ["get", "devices"],
            usage(
                "parley get",
                "[OPTIONS] {classes|uses|waiting}",
                "Invalid value: 'devices' is not one of classes, uses, waiting",
            ),
        ),
        (
            ["get", "waiting", "-l", "a b"],
            usage(
                "parley get",
                "[OPTIONS] {classes|uses|waiting}",
                "Invalid value: the label selector 'a b' is not understood: write key=value, key!=value, "
                "key in (a, b), key or !key",
            ),
        ),
        (
            ["explain", "node", "a"],
            usage(
                "parley explain",
                "[OPTIONS] {pod [NAME]}...",
                "Invalid value: 'node a': only pods can be explained: write `pod NAME` or `pod/NAME`",
            ),
        ),
        (
            ["explain", "pod", "a", "-l", "b=c"],
            usage(
                "parley explain",
                "[OPTIONS] {pod [NAME]}...",
                "Invalid value: a name and --selector exclude each other: leave one of them out",
            ),
        ),
        (
            ["doctor", "-o", "xml"],
            usage(
                "parley doctor",
                "[OPTIONS]",
                "Invalid value for '--output' / '-o': 'xml' is not one of 'text', 'wide', 'name', 'json', 'yaml'.",
            ),
        ),
        (
            ["demo", "-"],
            "error: -, document 1: is str 'nonsense', not an object; start it with apiVersion, kind and "
            "metadata\n",
        ),
        (
            ["simulate", "/nowhere.yaml"],
            "error: /nowhere.yaml: cannot be read: No such file or directory; give the path of a YAML file\n",
        ),
    ],
)
def test_a_wrong_command_line(command: list[str], output: str, tmp_path: Path) -> None:
    assert said(tmp_path, *command, stdin="nonsense") == (Exit.WRONG_INPUT, output)


@pytest.fixture(scope="module")
def answers() -> Answers:
    async def cluster_of_two() -> Answers:
        world = World()
        world.start_kubernetes()
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        for name in ("runs", "wants"):
            await world.add_pod(name, "one")
            await world.settle()
        await world.stop()
        return answers_of(world.server)

    return run(cluster_of_two())


def test_of_several_kubeconfigs_one_that_is_missing_hides_no_namespace(answers: Answers, tmp_path: Path) -> None:
    with served(answers, tmp_path, namespace="team") as path:
        several = CliRunner().invoke(plugin, ["get", "waiting"], env={"KUBECONFIG": f"{tmp_path}/none:{path}"})

    assert several.stderr == "No pod waits in namespace team.\n"


def test_who_may_not(answers: Answers, tmp_path: Path) -> None:
    with served(answers, tmp_path, refused=frozenset({"pods"})) as path:
        assert said(tmp_path, "explain", "pod", "wants", "--kubeconfig", str(path)) == (
            Exit.FORBIDDEN,
            "error: /api/v1/namespaces/default/pods/wants is forbidden: ask an administrator for that right\n",
        )


def test_what_is_not_there(answers: Answers, tmp_path: Path) -> None:
    with served(answers, tmp_path) as path:
        assert said(tmp_path, "explain", "pod", "wnts", "--kubeconfig", str(path)) == (
            Exit.NOT_FOUND,
            "error: pod default/wnts does not exist: did you mean wants?\n",
        )


def test_where_parley_is_not(tmp_path: Path) -> None:
    with served({}, tmp_path) as path:
        status, output = said(tmp_path, "get", "classes", "--kubeconfig", str(path))
    assert status == Exit.NOT_FOUND
    assert re.fullmatch(
        r"error: Parley is not installed in this cluster, or not completely: the API server knows no [a-z]+\."
        r"parley\.dev\. Install it with helm or kustomize \(docs/install\.md\), or choose another cluster with "
        r"--context\n",
        output,
    )


@pytest.mark.parametrize(
    "command", [("web", "--address"), ("controller", "--extender-address"), ("controller", "--web-address")]
)
def test_an_address_that_is_taken(command: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "config").write_text(config())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(app, [*command, address, "--kubeconfig", str(tmp_path / "config")])

    assert (result.exit_code, result.stderr.splitlines()[-1].replace(address, "HOST")) == (
        Exit.ADDRESS_TAKEN,
        "error: cannot serve at HOST: address already in use: give another port or address",
    )


Printed = Callable[..., str]


@pytest.fixture
def printed(answers: Answers, tmp_path: Path) -> Printed:
    def invoke(*command: str) -> str:
        with served(answers, tmp_path) as path:
            result = CliRunner().invoke(plugin, [*command, "--kubeconfig", str(path)])
        assert result.exit_code == 0, result.output
        return re.sub(r"\d+ (s|min|h|d)\b", "0 s", result.stdout)

    return invoke


@pytest.mark.parametrize("name", ["classes", "class", "prclass", "resourceclasses"])
def test_singular_and_short_names(name: str, printed: Printed) -> None:
    assert printed("get", name) == (
        "CLASS  DRIVER             NODES  WHAT     TOTAL  FREE  CLAIMS  WAITING\n"
        "gpu    device.parley.dev  1      devices  1      0     1       1\n"
    )


def test_without_headings(printed: Printed) -> None:
    assert printed("get", "class", "--no-headers") == "gpu  device.parley.dev  1  devices  1  0  1  1\n"


def test_wide(printed: Printed) -> None:
    assert printed("get", "classes", "-o", "wide").splitlines()[0].split()[-1] == "PARTLY-FREE"
    assert printed("get", "uses", "-o", "wide").splitlines()[1].split()[-2:] == ["device.parley.dev", "1"]


def test_names(printed: Printed) -> None:
    assert printed("get", "classes", "-o", "name") == "resourceclass.parley.dev/gpu\n"
    assert printed("get", "uses", "-o", "name") == "pod/runs\n"
    assert printed("get", "waiting", "-o", "name") == "pod/wants\n"
    assert printed("explain", "pods", "-o", "name") == "pod/wants\n"


def test_labels(printed: Printed) -> None:
    assert printed("get", "waiting", "-l", "app=other") == ""
    assert printed("get", "waiting", "-l", "app in (test, other)", "-o", "name") == "pod/wants\n"
    assert printed("explain", "pods", "-l", "!app", "-o", "name") == ""
    assert printed("explain", "pods", "-l", "app!=other", "-o", "name") == "pod/wants\n"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("get", "classes"), "ClassOverview"),
        (("get", "uses"), "UseOverview"),
        (("get", "waiting"), "WaitOverview"),
        (("explain", "pods"), "PodExplanationList"),
    ],
)
def test_data_says_of_which_kind_and_version_it_is(command: tuple[str, ...], kind: str, printed: Printed) -> None:
    for data in (orjson.loads(printed(*command, "-o", "json")), yaml.safe_load(printed(*command, "-o", "yaml"))):
        assert (data["apiVersion"], data["kind"], len(data["items"])) == ("cli.parley.dev/v1alpha1", kind, 1)
    assert f"`{kind}`" in PAGE


def test_the_page_has_every_status() -> None:
    told = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)]
    assert told == [*map(int, Exit), 130]
