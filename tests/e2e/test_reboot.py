"""A node loses power while pods run: its state folders survive; mounts, processes and what lay in /run do not."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.cluster.containers import LOOK, devices_seen, execute, restarted
from tests.cluster.manifests import UNTIL_FINISHED, pod
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import (
    SCRATCH,
    SCRATCH_DRIVER,
    allocated,
    own_plugin,
    plugin,
    scratch_settings,
)
from tests.cluster.nodes import prepared, specifications, unprepared
from tests.cluster.power import in_another_boot, power_off, power_on

from parley.api.resources import PODS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

BOTH = ("--driver", "devices", *SCRATCH_DRIVER)
NODE = "node-b"


async def test_pods_run_again_with_the_same_devices_after_their_node_lost_power_and_those_that_went_are_unprepared(
    cluster: Cluster, team: Namespace, device_files: Mapping[str, Path], tmp_path: Path
) -> None:
    node, folder = cluster.node(NODE), tmp_path / "scratch"
    file = tmp_path / "node.yaml"
    devices = yaml.safe_load(device_files[NODE].read_text())
    file.write_text(yaml.safe_dump({**devices, "drivers": scratch_settings(folder)}))
    lasting: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": NODE}, "restartPolicy": "Always"}
    with own_plugin(cluster, node) as own:
        own.stop()
        with plugin(cluster, node, "before", file, *BOTH) as before:
            script = "touch $SCRATCH/here; " + UNTIL_FINISHED
            user = pod("sorter", claims={"it": "sorter"}, script=script, **lasting)
            await allocated(team, "sorter", NODE, SCRATCH, "scratch", {"sizeMiB": 10}, user)
            await team.create(
                pod("keeps", templates={"gpu": "one"}, script=LOOK + UNTIL_FINISHED, **lasting),
                pod("goes", templates={"gpu": "one"}, **lasting),
            )
            await asyncio.gather(*(team.runs(name) for name in ("keeps", "goes", "sorter")))
            held, boots = prepared(node), boots_of(node.parley_dir)
            (mirror,) = await team.mirrors("keeps")
            (lost,) = await team.mirrors("goes")
            kept, gone = mirror.metadata.uid, lost.metadata.uid
            before.kill()

            power_off(cluster, node)
            shutil.rmtree(folder)
            await team.client.delete(PODS, "goes", team.name, grace_period_seconds=0)
            await team.gone(PODS, "goes")
            assert prepared(node) == held
            assert specifications(node) == []
            power_on(cluster, node)

        with plugin(cluster, node, "after", file, *BOTH, python=in_another_boot(tmp_path)):
            await asyncio.gather(restarted(team, "keeps"), restarted(team, "sorter"))
            await unprepared(node, gone)
            assert prepared(node) == {kept: held[kept]}
            assert devices_seen(cluster, team, "keeps") == sorted(held[kept])
            assert len(specifications(node)) == 2
            assert not set(boots_of(node.parley_dir).values()) & set(boots.values())
            assert execute(cluster, team, "sorter", "until [ -e $SCRATCH/here ]; do sleep 0.1; done; ls $SCRATCH")
            (own_folder,) = folder.iterdir()
            assert (own_folder / "here").exists()
            for name in ("keeps", "sorter"):
                await team.delete(PODS, name)
            assert list(folder.iterdir()) == []


def boots_of(state: Path) -> Mapping[str, str]:
    """The boot in which each claim of the plugin's own driver was prepared, by UID."""
    claims = orjson.loads((state / "checkpoint.json").read_bytes())["claims"]
    return {claim["uid"]: claim["boot"] for claim in claims}
