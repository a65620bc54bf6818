"""What a change costs where hundreds of pods wait for workspaces of groups: each is asked whether it helps."""

import random
from typing import Any

from tests.support.effort import cpu_seconds
from tests.unit.drivers.workspaces import GI, asks, disk, enforcing

from parley.api.builtin import Node, ObjectMeta
from parley.drivers.groups import HOSTNAME
from parley.drivers.workspace import WorkspaceDriver
from parley.sdk import Held, Request

ZONE = "topology.kubernetes.io/zone"


def add_node(driver: WorkspaceDriver, name: str, zone: str | None, size: str = "10Gi") -> None:
    labels = {ZONE: zone} if zone is not None else {}
    driver.observe(None, Node(metadata=ObjectMeta(name=name, labels=labels)))
    driver.observe(None, disk(name, size))


def grouped(group: str, size: str, key: str = ZONE, **class_: Any) -> Request[Any, Any]:
    return asks("p", {"size": size, "group": group}, topologyKey=key, **class_)


def hold(driver: WorkspaceDriver, uid: str, group: str, node: str, size: int = 1) -> None:
    data = {"bytes": size, "namespace": "default", "group": group}
    driver.restore(Held(uid, node, (), data))


def test_a_change_anywhere_has_the_nodes_searched_once_not_for_each_group_and_size() -> None:
    driver = WorkspaceDriver()
    for number in range(4_000):
        add_node(driver, f"n{number}", "full" if number % 2 else "free", "1Gi" if number % 2 else "10Gi")
    for number in range(200):
        hold(driver, f"u{number}", f"g{number}", "n1")
    waiting = [grouped(f"g{number}", f"{2048 + number}Mi") for number in range(200)]

    def asked() -> None:
        hold(driver, "comes-and-goes", "g0", "n1")
        driver.forget("comes-and-goes")
        assert not any(map(driver.has_room_anywhere, waiting))

    assert cpu_seconds(asked) < 0.2


def test_a_change_on_a_node_costs_no_more_the_more_members_a_group_has() -> None:
    driver = WorkspaceDriver()
    for name in ("a", "b"):
        add_node(driver, name, "east")
    for number in range(20_000):
        hold(driver, f"u{number}", "build", "a")
    waiting = [grouped("build", f"{20_000 + number}Mi") for number in range(300)]

    assert cpu_seconds(lambda: [driver.has_room(request, "b") for request in waiting]) < 0.04


def test_there_is_room_anywhere_if_there_is_on_any_node_whatever_changes() -> None:
    draw = random.Random(3)
    driver, names = WorkspaceDriver(), [f"n{number}" for number in range(6)]
    for name in names:
        add_node(driver, name, draw.choice(["east", "west", None]))
    for turn in range(600):
        name, uid = draw.choice(names), f"u{draw.randrange(5)}"
        match draw.randrange(5):
            case 0:
                driver.forget(uid)
            case 1 | 2:
                hold(driver, uid, draw.choice("gh"), name, draw.randrange(1, 9) * GI)
            case 3:
                slice_ = enforcing(disk(name, f"{draw.randrange(1, 12)}Gi"), able=draw.random() < 0.5)
                driver.observe(slice_, slice_)
            case 4:
                zone = {ZONE: found} if (found := draw.choice(["east", "west", None])) is not None else {}
                driver.observe(None, Node(metadata=ObjectMeta(name=name, labels=zone)))
        enforce = draw.choice(["Watch", "Image"])
        key = draw.choice([ZONE, ZONE, HOSTNAME])
        request = grouped(draw.choice(["g", "h", "new"]), f"{draw.randrange(1, 12)}Gi", key, enforce=enforce)
        two = asks("p", {"size": "1Gi", "group": "g"}, {"size": "1Gi", "group": "h"}, topologyKey=key)
        for asked in (request, two):
            assert driver.has_room_anywhere(asked) == any(driver.has_room(asked, node) for node in names), turn
