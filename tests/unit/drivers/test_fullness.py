"""In which order nodes are as full, and how much a request leaves on them."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from parley.drivers.device import fullness
from parley.drivers.device.flow import Steps
from parley.drivers.device.fullness import Fullness
from parley.drivers.device.packing import ClaimDemand, DeviceKind, Stock, pack

A100 = DeviceKind(40, 4, "a100")
T4 = DeviceKind(16, 1, "t4")


def wants(count: int, model: str | None = None, *, shared: bool = False) -> tuple[ClaimDemand, ...]:
    return (ClaimDemand(count, model, 0, shared),)


def stock(*groups: tuple[DeviceKind, int, int]) -> Stock:
    """Of each kind so many devices with so many free shares."""
    return {
        (kind, free): tuple(f"n/{kind.model}-{free}-{i}" for i in range(count)) for kind, free, count in groups
    }


class Nodes:
    """Nodes whose stock a test sets."""

    def __init__(self, stocks: Mapping[str, Stock]) -> None:
        self.stocks: dict[str, Stock] = {}
        self.order = Fullness(lambda node: self.stocks.get(node, {}))
        for node, of_node in stocks.items():
            self.set(node, of_node)

    def set(self, node: str, of_node: Stock) -> None:
        self.stocks[node] = of_node
        self.order.changed(node)

    def fullest(self, demands: tuple[ClaimDemand, ...]) -> list[str]:
        return list(dict.fromkeys(self.order.fullest(demands)))


def t4s(count: int) -> Stock:
    return stock((T4, 1, count))


def test_the_fullest_with_enough_come_first_and_those_with_too_little_last() -> None:
    nodes = Nodes({f"n{count}": t4s(count) for count in (4, 1, 3, 2)} | {"none": {}})
    assert nodes.fullest(wants(1)) == ["n1", "n2", "n3", "n4"]
    assert nodes.fullest(wants(3)) == ["n3", "n4", "n2", "n1"]


def test_a_question_puts_few_nodes_in_order_however_many_have_changed() -> None:
    counted: list[str] = []

    def counting(node: str) -> Stock:
        counted.append(node)
        return t4s(1)

    order = Fullness(counting)
    for number in range(1000):
        order.changed(f"n{number}")
    counted.clear()
    assert len(list(order.fullest(wants(1)))) == min(1000, fullness.AT_A_LEVEL)
    assert 0 < len(counted) < fullness.PENDING


def test_the_order_follows_what_is_held_and_released() -> None:
    nodes = Nodes({"a": t4s(2), "b": t4s(3)})
    assert nodes.fullest(wants(1)) == ["a", "b"]
    nodes.set("b", t4s(1))
    assert nodes.fullest(wants(1)) == ["b", "a"]
    nodes.set("b", {})
    assert nodes.fullest(wants(1)) == ["a"]
    nodes.set("b", t4s(9))
    assert nodes.fullest(wants(1)) == ["a", "b"]


def test_devices_of_no_use_do_not_count() -> None:
    nodes = Nodes({"a": stock((T4, 1, 1), (A100, 4, 4)), "b": stock((A100, 4, 2)), "c": t4s(1)})
    assert nodes.fullest(wants(1, "a100")) == ["b", "a"]
    assert nodes.order.room_left(wants(1, "a100"), "ab") == {"a": 3, "b": 1}
    assert nodes.order.room_left(wants(1), "ac") == {"a": 4, "c": 0}


def test_shares_go_to_devices_that_are_partly_used() -> None:
    begun, whole, both = stock((A100, 2, 1)), stock((A100, 4, 1)), stock((A100, 4, 3), (A100, 1, 1))
    nodes = Nodes({"whole": whole, "both": both, "begun": begun})
    assert nodes.fullest(wants(1, shared=True)) == ["both", "begun", "whole"]
    left = nodes.order.room_left(wants(1, shared=True), ["both", "begun", "whole"])
    assert left == {"both": 0, "begun": 0.5, "whole": 2}
    assert nodes.fullest(wants(1)) == ["whole", "both"]


def test_a_node_that_changes_while_the_order_is_gone_through_does_no_harm() -> None:
    nodes = Nodes({name: t4s(1) for name in "abcd"})
    order = nodes.order.fullest(wants(1))
    assert next(order) == "a"
    nodes.set("b", {})
    nodes.set("c", t4s(2))
    assert nodes.fullest(wants(1)) == ["a", "d", "c"]
    assert list(order) == ["b", "c", "d"]


def test_of_equal_nodes_a_bounded_number_is_handed_out() -> None:
    nodes = Nodes({f"n{i}": t4s(2) for i in range(fullness.AT_A_LEVEL + 9)} | {"last": t4s(5)})
    found = nodes.fullest(wants(1))
    assert len(found) == fullness.AT_A_LEVEL + 1
    assert found[-1] == "last"


def test_nodes_without_anything_of_use_are_not_looked_at() -> None:
    nodes = Nodes({"t4": t4s(2), "a100": stock((A100, 4, 1)), "full": {}})
    assert nodes.order.nodes_of_use(wants(1, "t4")) == {"t4"}
    assert nodes.order.nodes_of_use(wants(1, "h100")) == set()
    nodes.set("t4", {})
    assert nodes.order.nodes_of_use(wants(1)) == {"a100"}


def test_of_very_many_kinds_it_is_not_known_which_nodes_are_of_use() -> None:
    kinds = [DeviceKind(memory, 1, "t4") for memory in range(fullness.KINDS + 1)]
    nodes = Nodes({f"n{kind.memory}": stock((kind, 1, 1)) for kind in kinds})
    assert nodes.order.nodes_of_use(wants(1)) is None
    assert nodes.order.nodes_of_use(wants(1, "a100")) == set()


demands = st.lists(
    st.builds(ClaimDemand, st.integers(1, 4), st.sampled_from([None, "t4", "a100"]), st.just(0), st.booleans()),
    min_size=1,
    max_size=12,
).map(tuple)
stocks = st.lists(
    st.tuples(st.sampled_from([(T4, 1), (A100, 1), (A100, 3), (A100, 4)]), st.integers(1, 4)),
    unique_by=lambda group: group[0],
    max_size=4,
).map(lambda groups: stock(*((kind, free, count) for (kind, free), count in groups)))


@settings(max_examples=60)
@given(demands, st.lists(stocks, max_size=6))
def test_every_node_with_room_is_handed_out(wanted: tuple[ClaimDemand, ...], of_nodes: list[Stock]) -> None:
    nodes = Nodes({f"n{number}": of_node for number, of_node in enumerate(of_nodes)})
    found, of_use = nodes.fullest(wanted), nodes.order.nodes_of_use(wanted)
    assert of_use is not None
    for node, of_node in nodes.stocks.items():
        if pack(wanted, of_node, Steps(20_000)) is not None:
            assert node in found
            assert node in of_use
    assert all(left >= 0 for left in nodes.order.room_left(wanted, nodes.stocks).values())
