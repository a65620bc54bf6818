"""What the Helm chart does when it is removed."""

from collections.abc import Mapping
from typing import Any

import typer.main
from tests.unit.deploy.charts import CHART, objects
from typer.core import TyperGroup

from parley.cli.main import app
from parley_devcluster import manifests


def test_the_kinds_are_kept_when_the_chart_goes_unless_they_shall_not() -> None:
    def kept(values: Mapping[str, Any]) -> set[str | None]:
        return {
            (it["metadata"].get("annotations") or {}).get("helm.sh/resource-policy")
            for (kind, _), it in objects(values).items()
            if kind == "CustomResourceDefinition"
        }

    assert kept({}) == {"keep"}
    assert kept({"crds": {"keep": False}}) == {None}
    assert kept({"crds": {"enabled": False}}) == set()


def jobs(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The specs of what runs before and after the chart is removed."""
    return {
        it["metadata"]["annotations"]["helm.sh/hook"]: it["spec"]
        for (kind, _), it in objects(values).items()
        if kind == "Job"
    }


def test_before_it_is_removed_the_chart_asks_what_is_in_use_and_afterwards_releases_finalizers() -> None:
    made = jobs({})
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    for moment, option in (("pre-delete", "check"), ("post-delete", "release_finalizers")):
        (container,) = made[moment]["template"]["spec"]["containers"]
        program, subcommand = container["command"]
        found = command.get_command(typer.Context(command), subcommand)
        assert found is not None
        given = found.make_context(subcommand, list(container["args"])).params

        assert (program, subcommand) == ("parley", "uninstall")
        # on GKE the quota that lets such pods in is deleted before the last one runs
        assert "priorityClassName" not in made[moment]["template"]["spec"]
        assert given[option] is True
        assert given["force"] is False
        assert given["namespace"] == (manifests.NAMESPACE if option == "release_finalizers" else "")


def test_on_openshift_the_jobs_may_run_when_all_else_is_deleted() -> None:
    made = objects(CHART / "ci" / "openshift-values.yaml")

    for name in ("parley-uninstall-check", "parley-uninstall-release"):
        binding = made["RoleBinding", name]
        assert binding["roleRef"]["name"] == "system:openshift:scc:nonroot-v2"
        assert [it["name"] for it in binding["subjects"]] == [name]
        assert "helm.sh/hook" in binding["metadata"]["annotations"]


def test_by_force_nothing_is_asked_before() -> None:
    made = jobs({"uninstall": {"force": True}})

    assert list(made) == ["post-delete"]
    assert "--force" in made["post-delete"]["template"]["spec"]["containers"][0]["args"]
    assert jobs({"uninstall": {"hooks": False}}) == {}


def test_a_long_lease_is_waited_for() -> None:
    spec = jobs({"controller": {"options": {"leaseDuration": 300}}})["post-delete"]

    assert spec["template"]["spec"]["containers"][0]["args"][-2:] == ["--wait", "345"]
    assert spec["activeDeadlineSeconds"] == 375
