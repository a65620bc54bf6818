"""Where docker's engine for the tests comes from, and what its client is told."""

from pathlib import Path

import pytest

from parley_devcluster import docker
from parley_devcluster.debian import PackagesMissing


def program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_an_engine_on_the_path_is_taken_before_the_unpacked_one(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path / "path")}
    own = tmp_path / "parley" / "docker" / "usr"
    assert docker.programs(cache) is None

    program(own / "sbin" / "dockerd")
    assert docker.programs(cache) == f"{own}/bin:{own}/sbin:{tmp_path}/path"

    program(tmp_path / "path" / "dockerd")
    assert docker.programs(cache) == f"{tmp_path}/path"


def test_who_may_not_unpack_it_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    with pytest.raises(PackagesMissing, match="`make machine` downloads it, as root on Debian"):
        docker.unpack(environment={"XDG_CACHE_HOME": str(tmp_path), "PATH": ""})


def test_an_engine_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "path" / "dockerd", "echo first; echo no cgroups >&2; exit 1")
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": f"{tmp_path}/path:/bin:/usr/bin"}

    why = r"^dockerd does not start here: first\nno cgroups$"
    with pytest.raises(docker.NoDocker, match=why), docker.serving(environment=environment):
        pass


def test_only_builds_are_told_of_this_machines_network_and_index(tmp_path: Path) -> None:
    """The commands of the docs stay as they are."""
    program(tmp_path / "path" / "dockerd", "exec sleep 60")
    program(tmp_path / "path" / "docker", 'echo "$@"')
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": f"{tmp_path}/path:/bin:/usr/bin"}

    with docker.serving(build=("--secret", "id=a b"), environment=environment) as engine:
        built = engine.run("build", "-t", "x y", ".")
        pushed = engine.run("push", "x")

    assert built == "build --network host --secret id=a b -t x y .\n"
    assert pushed == "push x\n"
