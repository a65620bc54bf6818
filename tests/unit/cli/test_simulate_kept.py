"""What a simulation leaves allocated: claims without users, and what a node still has prepared."""

from copy import deepcopy
from pathlib import Path

import orjson
import pytest
from tests.unit.cli.simulating import Objects, as_dump, bound, keeping, outcome, simulate, stopped

from parley.simulate.virtual_time import run


def test_an_immediate_claim_that_nobody_uses_keeps_what_it_has(dump: Path, objects: Objects) -> None:
    held = [body for body in objects if body["kind"] == "ResourceClaim" and body["metadata"]["name"] == "kept"]
    conditions = [one for body in held for one in body.get("status", {}).get("conditions", ())]
    (where,) = [one["message"] for one in conditions if one["type"] == "Allocated"]
    assert where.startswith("allocated on node ")
    (kept,) = orjson.loads(simulate(dump, "-o", "json").stdout)["claims"]
    assert (kept["name"], kept["allocated"]) == ("kept", where)

    assert outcome(dump)["waits"] == (None, [])


def test_a_claim_that_is_kept_without_users_keeps_what_it_has(tmp_path: Path) -> None:
    async def a_cluster_that_keeps() -> Objects:
        world = await keeping("ran")
        await world.delete_pod("ran")
        await world.settle()
        await world.add_node("b", 1)
        for name in ("first", "second"):
            await world.add_pod(name, "one")
        await world.add_pod("next", claims=["disk"])
        return await stopped(world)

    path = tmp_path / "dump.json"
    as_dump(path, run(a_cluster_that_keeps()))

    pods = outcome(path)

    assert pods["next"] == ("a", ["gpu-0"])
    assert sorted(pods[name][0] or "" for name in ("first", "second")) == ["", "b"]


def test_a_claim_that_its_class_keeps_stays_when_its_pod_is_removed_or_drained(tmp_path: Path) -> None:
    async def a_cluster_that_keeps() -> Objects:
        world = await keeping("runs")
        await world.add_pod("waits", "one")
        await world.settle()
        await world.add_node("b")
        return await stopped(world)

    path = tmp_path / "dump.json"
    as_dump(path, run(a_cluster_that_keeps()))

    assert outcome(path, "--remove", "pod/runs") == {"waits": (None, [])}
    assert outcome(path, "--drain", "a")["runs"] == (None, [])
    assert "default/runs: ClaimStranded: " in simulate(path, "--drain", "a").stdout


@pytest.mark.parametrize(
    ("ready", "taint", "ends"),
    [
        ("True", "example.com/a", True),
        ("Unknown", "node.kubernetes.io/unreachable", False),
        ("Unknown", "node.kubernetes.io/out-of-service", True),
    ],
)
def test_a_pod_that_is_being_deleted_holds_nothing_unless_its_node_does_not_answer(
    dump: Path, objects: Objects, tmp_path: Path, ready: str, taint: str, ends: bool
) -> None:
    path, (node, devices) = tmp_path / "dump.json", outcome(dump)["first"]
    changed = deepcopy(objects)
    for body in changed:
        if body["kind"] == "Pod" and body["metadata"]["name"] == "first":
            body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if body["kind"] == "Pod" and body["metadata"]["name"] == "waits":
            body["spec"]["tolerations"] = [{"operator": "Exists"}]
        if body["kind"] == "Node" and body["metadata"]["name"] == node:
            body["status"]["conditions"] = [{"type": "Ready", "status": ready}]
            body["spec"] = {"taints": [{"key": taint, "effect": "NoSchedule"}]}
    as_dump(path, changed)

    pods = outcome(path)

    assert pods["waits"] == ((node, devices) if ends else (None, []))
    assert pods.get("first") == (None if ends else (node, devices))


def test_what_a_node_still_has_prepared_is_not_handed_out(dump: Path, objects: Objects, tmp_path: Path) -> None:
    """A pod was deleted by force; its device is free when its node has said so, or is gone."""
    (mirror,) = (
        body
        for body in objects
        if body["kind"] == "ResourceClaim" and body["metadata"]["name"].startswith("first-")
    )
    node = bound(objects)["first"]
    allocation = mirror["status"]["allocation"]
    held = [{"pool": one["pool"], "device": one["device"]} for one in allocation["devices"]["results"]]
    spec = {
        "claim": {"namespace": "default", "name": mirror["metadata"]["name"], "uid": mirror["metadata"]["uid"]},
        "nodeName": node,
        "driverName": "device.parley.dev",
        "holdingUid": mirror["metadata"]["uid"],
        "resourceClassName": "gpu",
        "allocation": {"handles": [{"driverName": "device.parley.dev", "devices": held}]},
    }
    release = {
        "apiVersion": "parley.dev/v1alpha1",
        "kind": "ClaimRelease",
        "metadata": {"name": "left"},
        "spec": spec,
        "status": {"allocationCleared": True},
    }
    of_first = {mirror["metadata"]["name"], "first"}
    rest = [body for body in objects if body["metadata"]["name"] not in of_first]
    without, owing = tmp_path / "without.json", tmp_path / "owing.json"
    as_dump(without, rest)
    as_dump(owing, [*rest, release])

    assert outcome(without)["waits"][0] == node
    assert outcome(owing)["waits"] == (None, [])
