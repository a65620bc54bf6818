"""`parley uninstall`: what it says, and its exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.serving import KINDS, Answers, answers_of, served
from tests.unit.scheduler.conftest import World
from typer.testing import CliRunner

from parley.api.exits import Exit
from parley.api.resources import LEASES
from parley.cli.main import app, plugin
from parley.drivers import built_in
from parley.simulate.virtual_time import run


async def a_cluster(*pods: str, led_in: str = "") -> Answers:
    """A named claim that is used by these pods; a controller leads in that namespace, if it is given."""
    world = World()
    world.start_kubernetes()
    world.start_parley(drivers=built_in())
    await world.add_node("a", 2)
    await world.add_class(shareable=True)
    await world.add_claim("mine")
    await world.settle()
    for pod in pods:
        await world.add_pod(pod, claims=["mine"])
        await world.settle()
    await world.stop()
    if led_in:
        spec = {
            "holderIdentity": "parley-1",
            "leaseDurationSeconds": 3600,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }
        lease = {"metadata": {"name": "parley-controller", "namespace": led_in}, "spec": spec}
        await world.client.create(LEASES, lease, led_in)
    return answers_of(world.server, (*KINDS, LEASES))


@pytest.fixture
def used(tmp_path: Path) -> Iterator[Path]:
    with served(run(a_cluster("one", "two")), tmp_path) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def unused(tmp_path: Path) -> Iterator[Path]:
    with served(run(a_cluster()), tmp_path) as kubeconfig:
        yield kubeconfig


def test_claims_in_use_are_named_with_their_pods_and_have_an_exit_code_of_their_own(used: Path) -> None:
    for way in ("--check", "--release-finalizers"):
        told = CliRunner().invoke(app, ["uninstall", way, "--kubeconfig", str(used)])

        assert told.stdout == "claim default/mine is used by pods one, two: delete the pods\n"
        assert (
            told.stderr
            == "error: 1 claim is in use: Parley cannot be removed without harm to the pods named above\n"
        )
        assert told.exit_code == Exit.IN_USE


IN_USE = {
    "wide": "NAMESPACE  CLAIM  PODS     NODES\ndefault    mine   one,two  -\n",
    "name": "resourceclaim.resource.k8s.io/mine\n",
    "yaml": "apiVersion: cli.parley.dev/v1alpha1\nkind: ClaimUseList\nitems:\n- namespace: default\n  name: mine\n"
    "  pods:\n  - one\n  - two\n  nodes: []\n",
}


@pytest.mark.parametrize("how", IN_USE)
def test_claims_in_use_are_listed_as_kubectl_lists(used: Path, how: str) -> None:
    told = CliRunner().invoke(app, ["uninstall", "--check", "-o", how, "--kubeconfig", str(used)])

    assert (told.exit_code, told.stdout) == (Exit.IN_USE, IN_USE[how])


def test_claims_in_use_are_data_without_headings_and_nothing_in_use_is_an_empty_list(
    used: Path, tmp_path: Path
) -> None:
    bare = CliRunner().invoke(
        app, ["uninstall", "--check", "-o", "wide", "--no-headers", "--kubeconfig", str(used)]
    )
    with served(run(a_cluster()), tmp_path) as kubeconfig:
        none = CliRunner().invoke(app, ["uninstall", "--check", "-o", "json", "--kubeconfig", str(kubeconfig)])

    assert bare.stdout == "default  mine  one,two  -\n"
    assert (none.exit_code, json.loads(none.stdout)) == (
        0,
        {"apiVersion": "cli.parley.dev/v1alpha1", "kind": "ClaimUseList", "items": []},
    )


def test_nothing_is_released_while_a_controller_leads_in_whatever_namespace(tmp_path: Path) -> None:
    release = ["uninstall", "--release-finalizers", "--wait", "0"]
    with served(run(a_cluster(led_in="team")), tmp_path) as kubeconfig:
        anywhere = CliRunner().invoke(app, [*release, "--kubeconfig", str(kubeconfig)])
        only_there = CliRunner().invoke(app, [*release, "-n", "parley-system", "--kubeconfig", str(kubeconfig)])

    assert anywhere.exit_code != 0
    assert "parley-1 still leads (Lease team/parley-controller)" in anywhere.stderr
    assert "still leads" not in only_there.stderr


def test_what_is_released_has_no_other_format_than_text(used: Path) -> None:
    told = CliRunner().invoke(app, ["uninstall", "--release-finalizers", "-o", "json", "--kubeconfig", str(used)])

    assert told.exit_code == 2
    assert "--output goes with --check" in told.stderr


def test_a_context_that_is_not_there_is_named(used: Path) -> None:
    told = CliRunner().invoke(
        app, ["uninstall", "--check", "-n", "elsewhere", "--context", "other", "--kubeconfig", str(used)]
    )

    assert told.exit_code == Exit.NO_ACCESS
    assert "other" in told.stderr


def test_it_asks_as_another_user(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod, too: whoever says as whom to ask means a kubeconfig."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(used))
    told = CliRunner().invoke(app, ["uninstall", "--check", "--as", "jane"])

    assert told.exit_code == Exit.IN_USE


def test_with_nothing_in_use_the_check_passes(unused: Path) -> None:
    told = CliRunner().invoke(app, ["uninstall", "--check", "--kubeconfig", str(unused)])

    assert (told.exit_code, told.stdout) == (0, "No claim is in use.\n")


def test_who_may_not_look_is_told_so(used: Path, tmp_path: Path) -> None:
    with served(run(a_cluster()), tmp_path, refused=frozenset({"claimreleases"})) as kubeconfig:
        told = CliRunner().invoke(app, ["uninstall", "--check", "--kubeconfig", str(kubeconfig)])

    assert told.exit_code == Exit.FORBIDDEN
    assert "claimreleases is forbidden: ask an administrator for that right" in told.stderr


@pytest.mark.parametrize("arguments", [[], ["--check", "--release-finalizers"]])
def test_exactly_one_of_the_two_has_to_be_given(arguments: list[str]) -> None:
    told = CliRunner().invoke(app, ["uninstall", *arguments])

    assert told.exit_code == 2
    assert "give one of --check and --release-finalizers" in " ".join(told.stderr.split())


def test_a_check_cannot_be_forced() -> None:
    told = CliRunner().invoke(app, ["uninstall", "--check", "--force"])

    assert told.exit_code == 2
    assert "--force goes with --release-finalizers" in told.stderr


def test_kubectls_plugin_has_it_not() -> None:
    assert CliRunner().invoke(plugin, ["uninstall", "--check"]).exit_code == 2
