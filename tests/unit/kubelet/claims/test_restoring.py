"""CDI files of prepared claims that somebody removed: a container that is restarted needs them."""

import shutil
from pathlib import Path

import pytest
import structlog
from tests.unit.kubelet.claims.test_preparation import Node, allocated
from tests.unit.kubelet.test_plugin import running, specifications
from tests.unit.kubelet.test_plugin import settings as plugin_settings

from parley.kube.client import Client
from parley_kubelet.serving import driver_server
from parley_kubelet.settings import PluginSettings
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import allocated_status, create_claim, until

settings = plugin_settings

MESSAGE = "removed CDI files were written again"


@pytest.fixture
def node(client: Client, folder: Path) -> Node:
    return Node(client, folder)


async def test_removed_files_of_prepared_claims_are_written_again(node: Node) -> None:
    plugin = node.plugin()
    first, second = await allocated(node, "a", "gpu-0"), await allocated(node, "b", "gpu-1")
    ended = await allocated(node, "c", "gpu-2")
    for claim in (first, second, ended):
        await plugin.prepare(claim)
    await plugin.unprepare(ended)
    before = node.specifications()
    (node.cdi / f"parley.dev-device.parley.dev-claim-{first.uid}.json").unlink()
    with structlog.testing.capture_logs() as logs:
        await plugin.restore_missing()
        await plugin.restore_missing()
    assert node.specifications() == before
    assert [entry for entry in logs if entry["event"] == MESSAGE] == [
        {"event": MESSAGE, "driver": "device.parley.dev", "uids": [first.uid], "log_level": "warning"}
    ]


async def test_a_claim_for_which_a_call_is_under_way_is_left_to_it(node: Node) -> None:
    plugin, claim = node.plugin(), await allocated(node, "a", "gpu-0")
    await plugin.prepare(claim)
    shutil.rmtree(node.cdi)
    node.cdi.mkdir()
    async with Folder(node.state).locked_name(claim.uid):
        await plugin.restore_missing()
        assert node.specifications() == {}
    await plugin.restore_missing()
    assert list(node.specifications()) == [claim.uid]


async def test_the_plugin_looks_for_them_periodically_also_after_the_folder_was_gone(
    settings: PluginSettings, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_server, "RESTORE", 0.05)
    claim = await create_claim(client, "a", allocated_status("n1", ["gpu-0"]))
    with structlog.testing.capture_logs() as logs:
        async with running(settings, client) as kubelet:
            await kubelet.prepare(claim)
            shutil.rmtree(settings.cdi)
            await until(lambda: any(entry["event"] == "no search for removed CDI files" for entry in logs))
            settings.cdi.mkdir()
            await until(lambda: len(specifications(settings)) == 1)
            await kubelet.unprepare(claim)
            assert specifications(settings) == []
