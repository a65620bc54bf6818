"""Which cluster a user gets, by what was asked for and what the machine has."""

from pathlib import Path

import pytest

from parley_devcluster.choice import ChoiceError, Existing, KindCluster, Local, choose
from parley_devcluster.engine import Engine

PODMAN = Engine("/usr/bin/podman", {})


def with_kind(name: str) -> str | None:
    return "/usr/local/bin/kind" if name == "kind" else None


def without(name: str) -> str | None:
    return None


def test_a_kubeconfig_that_exists_goes_first(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")

    chosen = choose(None, {"PARLEY_KUBECONFIG": str(tmp_path / "config")}, with_kind, lambda: PODMAN)

    assert chosen == Existing(tmp_path / "config")


def test_a_kubeconfig_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        ChoiceError, match=r"kubeconfig '/none' does not exist: name another one, or unset PARLEY_KUBE"
    ):
        choose(Path("/none"), {}, without, lambda: None)


def test_the_users_kind_is_used_where_an_engine_works() -> None:
    assert choose(None, {}, with_kind, lambda: PODMAN) == KindCluster(PODMAN, Path("/usr/local/bin/kind"))


def test_an_engine_alone_is_no_reason_for_containers() -> None:
    assert choose(None, {}, without, lambda: PODMAN) == Local()


def test_kind_without_an_engine_is_not_used() -> None:
    assert choose(None, {}, with_kind, lambda: None) == Local()


def test_containers_that_were_asked_for_are_made_by_what_is_built_here() -> None:
    assert choose(None, {}, with_kind, lambda: PODMAN, containers=True) == KindCluster(PODMAN, None)


def test_containers_without_an_engine_are_refused_with_the_remedy() -> None:
    with pytest.raises(ChoiceError) as caught:
        choose(None, {}, with_kind, lambda: None, containers=True)

    assert str(caught.value) == (
        "no container engine works here (docker, podman, nerdctl), which nodes in containers need: install one, or"
        " leave out --kind to get a cluster of processes"
    )
