"""Nothing is allocated beside what a driver could not restore, until that is released."""

import pytest

from parley.negotiation.answers import Answer
from parley.sdk import Allocation, Device
from parley.sdk.checks import DriverFault
from parley.sdk.unrestored import Unrestored
from parley.sdk.values import Held

WHY = (
    "driver disks.example.com could not restore what claim team/data holds (KeyError: 'disk'), and leaves it "
    "alone until that claim is released"
)


def lost(node: str | None = "a", *, local: bool = True, ordinary: bool = False) -> Unrestored:
    """A claim that was not restored, with a device."""
    unrestored = Unrestored("disks.example.com")
    held = Held("uid", node, (Device("a", "disk-1"),), None if ordinary else {"disk": "1"})
    unrestored.add(held, "team/data", KeyError("disk"), local=local)
    return unrestored


def test_its_node_is_barred_with_the_reason() -> None:
    assert lost().barred(["a", "b"]) == {"a": WHY}
    assert lost().messages() == {"uid": WHY}


def test_devices_of_ordinary_dra_bar_no_node() -> None:
    assert lost(ordinary=True).barred(["a"]) == {}


@pytest.mark.parametrize(("node", "local"), [("a", False), (None, True)])
def test_what_can_be_used_elsewhere_bars_every_node(node: str | None, local: bool) -> None:
    assert lost(node, local=local).barred(["a", "b"]) == {"a": WHY, "b": WHY}


def test_barred_nodes_are_not_among_the_answers() -> None:
    unrestored = lost()
    answers = unrestored.without_barred({"data": Answer(("b",), ("a", "c"), {})}, unrestored.barred(["a", "b"]))
    assert answers == {"data": Answer(("b",), ("c",), {"a": WHY})}


def test_its_device_is_not_allocated_on_any_node() -> None:
    with pytest.raises(DriverFault) as raised:
        lost().check_devices({"data": Allocation((Device("a", "disk-1"),))})
    assert str(raised.value) == f"device a/disk-1 may be in use: {WHY}"
    lost().check_devices({"data": Allocation((Device("a", "disk-2"),))})


def test_nothing_is_barred_once_it_is_released() -> None:
    unrestored = lost()
    unrestored.remove("uid")
    unrestored.remove("uid")
    assert unrestored.barred(["a"]) == unrestored.messages() == {}
    unrestored.check_devices({"data": Allocation((Device("a", "disk-1"),))})
