"""What would have to go from a node for a pod of higher priority."""

from hypothesis import given
from hypothesis import strategies as st

from parley.api.builtin import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from parley.negotiation.fit import Needs, needs_of, shortage
from parley.negotiation.preemption import Eviction, Sum, eviction

ROOM = {"cpu": 8_000, "pods": 10_000}


def needs(cpu: int) -> Needs:
    return Needs((("cpu", cpu * 1000),), (), None, (), "")


def test_the_lowest_priorities_go_first_and_no_more_than_needed() -> None:
    used = {0: Sum({"cpu": 3_000}, 2), 5: Sum({"cpu": 3_000}, 1), 20: Sum({"cpu": 2_000}, 1)}
    assert eviction(needs(3), 10, ROOM, used) == Eviction(0, 2)
    assert eviction(needs(4), 10, ROOM, used) == Eviction(5, 3)
    assert eviction(needs(7), 10, ROOM, used) is None


def test_nothing_goes_where_there_is_room_and_nobody_of_the_same_priority() -> None:
    assert eviction(needs(3), 10, ROOM, {0: Sum({"cpu": 5_000}, 1)}) is None
    assert eviction(needs(4), 10, ROOM, {10: Sum({"cpu": 5_000}, 1)}) is None


def test_pods_may_have_to_go_for_their_place_alone() -> None:
    room = {"cpu": 8_000, "pods": 2_000}
    assert eviction(needs(1), 10, room, {0: Sum({}, 1), 3: Sum({}, 1)}) == Eviction(0, 1)


def test_a_pod_without_requests_needs_no_eviction_for_resources() -> None:
    pod = Pod(metadata=ObjectMeta(), spec=PodSpec(containers=[Container(resources=ResourceRequirements())]))
    assert eviction(needs_of(pod), 10, ROOM, {0: Sum({"cpu": 9_000}, 1)}) is None


SUMS = st.dictionaries(
    st.integers(0, 4),
    st.builds(Sum, st.fixed_dictionaries({"cpu": st.integers(0, 9)}), st.integers(1, 3)),
    max_size=5,
)


@given(SUMS, st.integers(0, 9), st.integers(0, 5), st.integers(0, 9), st.integers(0, 6))
def test_what_is_left_fits_and_one_priority_less_does_not(
    used: dict[int, Sum], wanted: int, priority: int, cpu: int, places: int
) -> None:
    asked = Needs((("cpu", wanted),), (), None, (), "")
    room = {"cpu": cpu, "pods": places * 1000}

    def fits(staying: dict[int, Sum]) -> bool:
        taken = {"cpu": sum(one.amounts["cpu"] for one in staying.values())}
        return not shortage(asked, room, taken, sum(one.pods for one in staying.values()))

    found = eviction(asked, priority, room, used)
    if found is None:
        assert fits(used) or not fits({p: one for p, one in used.items() if p >= priority})
        return
    assert found.priority < priority
    assert not fits({p: one for p, one in used.items() if p >= found.priority})
    assert fits({p: one for p, one in used.items() if p > found.priority})
    assert found.pods == sum(one.pods for p, one in used.items() if p <= found.priority)
