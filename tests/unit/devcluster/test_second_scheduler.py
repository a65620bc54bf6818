"""The second scheduler of a local cluster is configured as shipped, but for addresses."""

from pathlib import Path

import pytest
import yaml

from parley_devcluster.second_scheduler import configuration, free_address
from parley_devcluster.startup import ClusterError

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_only_the_kubeconfig_and_the_extenders_address_differ_from_what_is_shipped() -> None:
    shipped = yaml.safe_load((DEPLOY / "extender" / "scheduler.yaml").read_text())

    used = configuration(DEPLOY, Path("/tmp/account"), "127.0.0.1:12345")

    assert used["clientConnection"].pop("kubeconfig") == "/tmp/account"
    assert [entry.pop("urlPrefix") for entry in used["extenders"]] == ["http://127.0.0.1:12345"] * 2
    for entry in shipped["extenders"]:
        del entry["urlPrefix"]
    assert used == shipped


def test_the_extender_listens_on_loopback_only() -> None:
    host, port = free_address().split(":")

    assert host == "127.0.0.1"
    assert int(port) > 0


def test_a_folder_without_the_manifests_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as caught:
        configuration(tmp_path, Path("/tmp/account"), "127.0.0.1:1")

    assert str(caught.value) == (
        f"{tmp_path} has no folder 'extender': name the folder that holds Parley's manifests"
    )
