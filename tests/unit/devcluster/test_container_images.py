"""What the container engine and the builds of images are told: files and command lines from values."""

import resource
import tomllib
from pathlib import Path

import pytest

from parley_devcluster import debian_image, engine, parley_image
from parley_devcluster.engine import Engine, EngineError


def test_podman_hands_on_the_limits_that_this_process_has() -> None:
    limits = {"nofile": 20000, "nproc": resource.RLIM_INFINITY}

    settings = tomllib.loads(engine.containers_conf(Path("/cache/engine"), "runc", limits))

    assert settings["containers"]["default_ulimits"] == ["nofile=20000:20000"]
    assert settings["engine"]["runtime"] == "runc"
    assert settings["engine"]["cgroup_manager"] == "cgroupfs"


def test_a_client_without_an_engine_does_not_work(tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\necho Cannot connect to the daemon >&2; exit 1\n")
    client.chmod(0o755)

    assert Engine(str(client), {}).works() is False
    assert Engine(str(tmp_path / "absent"), {}).works() is False


def test_docker_is_asked_for_its_builder_that_knows_secrets(tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\n")
    client.chmod(0o755)

    found = engine.find({"PATH": str(tmp_path)})

    assert found is not None
    assert found.environment()["DOCKER_BUILDKIT"] == "1"


def test_only_an_oci_archive_counts_as_a_saved_image(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").touch()
    client = tmp_path / "docker"
    client.write_text(f'#!/bin/sh\ntar --create --file "$3" --directory {tmp_path} manifest.json\n')
    client.chmod(0o755)
    archive = tmp_path / "image.tar"

    with pytest.raises(EngineError, match=r"^docker saved parley:1, but not as an OCI archive: take docker 25 or"):
        Engine(str(client), {}).save("parley:1", archive)

    assert not archive.exists()


def test_podmans_images_and_networks_are_in_one_folder() -> None:
    storage = tomllib.loads(engine.storage_conf(Path("/cache/engine")))["storage"]
    settings = tomllib.loads(engine.containers_conf(Path("/cache/engine"), "crun", {}))

    places = [storage["graphroot"], storage["runroot"], settings["network"]["network_config_dir"]]
    assert all(place.startswith("/cache/engine/") for place in [*places, settings["engine"]["tmp_dir"]])


def test_a_build_takes_packages_from_where_pip_does() -> None:
    listed = (
        ":env:.find-links='/opt/wheels'\n:env:.timeout='180'\nglobal.index-url='https://example.com/simple?a=b'\n"
    )

    assert parley_image.pip_settings(listed) == (
        "[global]\ntimeout = 180\nindex-url = https://example.com/simple?a=b\n"
    )


def test_another_list_of_packages_is_another_base() -> None:
    assert debian_image.BaseImage("python", ("python3",)).image != debian_image.PYTHON.image


def test_a_base_trusts_whom_this_machine_trusts(tmp_path: Path) -> None:
    bundle = tmp_path / "authorities.crt"
    bundle.write_text("")

    trusting = debian_image.command(debian_image.PYTHON, Path("/s/base.tar"), bundle)
    other = debian_image.command(debian_image.PYTHON, Path("/s/base.tar"), tmp_path / "none")

    assert f"--customize-hook=copy-in {bundle} {tmp_path}" in trusting
    assert other[-4:] == [
        "--variant=minbase",
        "--include=ca-certificates,python3,python3-venv",
        "bookworm",
        "/s/base.tar",
    ]
