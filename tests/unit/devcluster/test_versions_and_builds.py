"""Versions are pinned in one place, and go.mod and build command follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from parley_devcluster import gobuild, versions
from parley_devcluster.binaries import cache_directory, find
from parley_devcluster.gobuild import BuildError, build, build_command, go_mod, missing_programs
from parley_devcluster.versions import GoModule, VersionError, kubernetes_version, modules

KUBERNETES_GO_MOD = """\
module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.140.0
)

replace (
	k8s.io/client-go => ./staging/src/k8s.io/client-go
	k8s.io/api => ./staging/src/k8s.io/api
)
"""

ETCD_GO_MOD = """\
module go.etcd.io/etcd/server/v3

go 1.26.0

toolchain go1.26.10

replace go.etcd.io/etcd/api/v3 => ../api
"""


PROMTOOL = "github.com/prometheus/prometheus/cmd/promtool"


def kubernetes() -> GoModule:
    return modules("v1.37.0")[0]


def test_every_program_is_made_from_one_pinned_module() -> None:
    made = [name for module in modules() for name, _ in module.programs]

    everything = {
        *versions.CONTROL_PLANE,
        *versions.NODE,
        *versions.INSTALLER,
        *versions.ALERTS,
        *versions.PLUGINS,
        *versions.CONTAINERS,
    }
    assert sorted(made) == sorted(everything)


def test_promtool_is_built_without_the_service_discovery_of_cloud_vendors() -> None:
    (prometheus,) = (module for module in modules() if module.programs == (("promtool", PROMTOOL),))

    command = build_command("go", prometheus, "promtool", Path("/cache/x"))

    assert command[4:6] == ["-tags", "remove_all_sd"]
    assert command[-1] == PROMTOOL


@pytest.mark.parametrize(
    ("given", "meant"), [("v1.37.0", "v1.37.0"), ("1.36.4", "v1.36.4"), (" 1.40.12\n", "v1.40.12")]
)
def test_a_version_may_be_given_with_or_without_v(given: str, meant: str) -> None:
    assert kubernetes_version(given) == meant


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            "1.37",
            "Kubernetes version '1.37' is not of the form v1.37.0: give major, minor and patch number",
        ),
        (
            "v1.35.9",
            "Kubernetes version 'v1.35.9' is too old: Parley needs 1.36 or later (binding conditions)",
        ),
    ],
)
def test_a_version_that_cannot_be_used_is_refused_with_the_reason(given: str, told: str) -> None:
    with pytest.raises(VersionError) as caught:
        kubernetes_version(given)

    assert str(caught.value) == told


def test_staging_modules_of_kubernetes_are_replaced_by_their_published_versions() -> None:
    assert go_mod(kubernetes(), KUBERNETES_GO_MOD) == (
        "module parley.dev/build/kubernetes-v1.37.0\n"
        "go 1.26.0\n"
        "require k8s.io/kubernetes v1.37.0\n"
        "replace k8s.io/api => k8s.io/api v0.37.0\n"
        "replace k8s.io/client-go => k8s.io/client-go v0.37.0\n"
    )


def test_another_patch_release_takes_its_own_staging_modules() -> None:
    text = go_mod(modules("v1.36.3")[0], KUBERNETES_GO_MOD)

    assert "require k8s.io/kubernetes v1.36.3\n" in text
    assert "replace k8s.io/api => k8s.io/api v0.36.3\n" in text


def test_replacements_by_neighbouring_folders_are_left_out_because_versions_are_published() -> None:
    assert go_mod(modules()[1], ETCD_GO_MOD) == (
        "module parley.dev/build/etcd-v3.7.3\ngo 1.26.0\nrequire go.etcd.io/etcd/server/v3 v3.7.3\n"
    )


def test_the_build_command_sets_the_version_that_the_program_reports() -> None:
    command = build_command("go", kubernetes(), "kube-apiserver", Path("/cache/x"))

    assert command[:5] == ["go", "build", "-mod=mod", "-trimpath", "-ldflags"]
    assert "-X k8s.io/component-base/version.gitVersion=v1.37.0" in command[5]
    assert "-X k8s.io/client-go/pkg/version.gitMinor=37" in command[5]
    assert command[6:] == ["-o", "/cache/x", "k8s.io/kubernetes/cmd/kube-apiserver"]


def test_tests_of_a_package_are_built_as_a_program_without_vetting_what_they_import() -> None:
    module = versions.scheduler_perf("v1.31.0", "test/integration/scheduler_perf")

    command = build_command("go", module, versions.SCHEDULER_PERF, Path("/cache/x"))

    assert command[:6] == ["go", "test", "-c", "-vet=off", "-mod=mod", "-trimpath"]
    assert "-X k8s.io/component-base/version.gitVersion=v1.31.0" in command[7]
    assert command[8:] == ["-o", "/cache/x", "k8s.io/kubernetes/test/integration/scheduler_perf"]
    assert "replace k8s.io/api => k8s.io/api v0.31.0\n" in go_mod(module, KUBERNETES_GO_MOD)


def test_only_programs_that_the_cache_lacks_are_built(tmp_path: Path) -> None:
    (tmp_path / "etcd-v3.7.3").mkdir()
    (tmp_path / "etcd-v3.7.3" / "etcd").touch()
    (tmp_path / "kubernetes-v1.37.0").mkdir()
    (tmp_path / "kubernetes-v1.37.0" / ".kubelet.partial").touch()

    missing = missing_programs(tmp_path, modules(), ["etcd", "kubelet"])

    assert [name for _, name in missing] == ["kubelet"]


def test_without_go_the_error_names_every_other_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BuildError) as caught:
        build(tmp_path, modules(), ["etcd"])

    assert str(caught.value) == (
        "go is not on PATH: install Go 1.26 or later to build the cluster's programs, or name a folder that has"
        " them in KUBEBUILDER_ASSETS, or name an existing cluster's file in PARLEY_KUBECONFIG"
    )


def test_a_failed_build_shows_what_go_said_and_leaves_nothing_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = program(tmp_path / "path" / "go", f'echo \'{{"GoMod": "{tmp_path}/go.mod"}}\'')
    (tmp_path / "go.mod").write_text(ETCD_GO_MOD)
    failing = '[ "$1" = mod ] || { echo no such package >&2; exit 1; }\n'
    go.write_text(go.read_text().replace("\n", f"\n{failing}", 1))
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    told: list[str] = []

    with pytest.raises(BuildError, match=r"failed in .*\(exit status 1\):\nno such package$"):
        build(tmp_path / "cache", modules(), ["etcd"], told.append)

    assert told == ["etcd v3.7.3 (1 of 1): building, 0 s elapsed"]
    assert not (tmp_path / "cache" / "etcd-v3.7.3" / "etcd").exists()


def test_the_cache_is_the_users_own_and_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")

    assert cache_directory({"XDG_CACHE_HOME": "/var/cache/ada"}) == Path("/var/cache/ada/parley")
    assert cache_directory({}) == Path("/home/ada/.cache/parley")


@pytest.mark.parametrize(
    ("reported", "place"),
    [
        ({"path": "1.37.0"}, "path"),
        ({"path": "1.33.1"}, "cache"),
        ({"assets": "1.37.4", "path": "1.37.0"}, "assets"),
        ({"assets": "1.36.0", "path": "1.37.0"}, "path"),
    ],
)
def test_a_found_program_counts_only_in_the_wanted_version(
    tmp_path: Path, reported: Mapping[str, str], place: str
) -> None:
    cached = tmp_path / "cache" / "parley" / "kubernetes-v1.37.0" / "kube-apiserver"
    program(cached, "exit 0")
    for folder in reported:
        program(tmp_path / folder / "kube-apiserver", "exit 0")
    environment = {
        "KUBEBUILDER_ASSETS": str(tmp_path / "assets"),
        "PATH": str(tmp_path / "path"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    found = find(["kube-apiserver"], modules(), environment, lambda path: reported.get(path.parent.name))

    expected = cached if place == "cache" else tmp_path / place / "kube-apiserver"
    assert found.paths == {"kube-apiserver": expected}
    assert found.missing == ()


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("containerd", "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1"),
        ("ctr", "ctr github.com/containerd/containerd 1.6.20~ds1"),
        ("containerd-shim-runc-v2", ""),
    ],
)
def test_debians_containerd_is_not_taken_for_a_nodes(tmp_path: Path, name: str, printed: str) -> None:
    """It is on PATH where docker or podman was installed, and knows no CDI."""
    program(tmp_path / "path" / name, f"echo '{printed}'")

    found = find([name], modules(), {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path / "path")})

    assert found.missing == (name,)


def test_a_program_that_is_nowhere_is_missing(tmp_path: Path) -> None:
    found = find(["etcd"], modules(), {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""})

    assert found.missing == ("etcd",)


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    gobuild.say("building")

    assert capsys.readouterr() == ("", "parley: building\n")


def program(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path
