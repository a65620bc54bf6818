"""`parley simulate` and claims of the dump that are being deleted: nobody gets them any more."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.unit.cli.simulating import Objects, as_dump, simulate, stopped
from tests.unit.scheduler.conftest import World

from parley.api.resources import CLAIMS
from parley.simulate.virtual_time import run


async def a_cluster(*, used: bool) -> Objects:
    """Claim "data" is deleted; pod "late" names it. `used`: pod "runs" has it still."""
    world = World()
    world.start_kubernetes()
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_claim("data")
    await world.settle()
    if used:
        await world.add_pod("runs", claims=["data"])
        await world.settle()
    else:
        await world.crash()  # which would let it go
    await world.client.delete(CLAIMS, "data", "default")
    await world.add_pod("late", claims=["data"])
    await world.settle()
    objects = await stopped(world)
    assert [one for one in objects if one["kind"] == "ResourceClaim" and one["metadata"].get("deletionTimestamp")]
    return objects


@pytest.mark.parametrize(
    ("used", "nodes", "reason"),
    [
        (
            True,
            {"runs": "a", "late": None},
            "claim default/data is being deleted: recreate it once it is gone, or the pod with another claim",
        ),
        (False, {"late": None}, "claim default/data does not exist: create a ResourceClaim of parley.dev"),
    ],
)
def test_a_pod_does_not_get_a_claim_that_is_being_deleted(
    tmp_path: Path, used: bool, nodes: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "dump.json"
    as_dump(path, run(a_cluster(used=used)))

    result = simulate("-o", "json", path)

    pods = orjson.loads(result.stdout)["items"]
    assert {pod["name"]: pod["node"] for pod in pods} == nodes
    (late,) = [pod for pod in pods if pod["name"] == "late"]
    assert reason in late["reason"]
