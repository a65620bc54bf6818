"""The built-in objects that stand for Parley's: what they look like, and that they are read back as written."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.control.builders import (
    NAMESPACE,
    NOW,
    TOKENS,
    a_claim,
    a_pod,
    generated_for,
    generated_metadata,
    mirror_of,
    read,
    user,
)

from parley.api.builtin import BuiltinClaim
from parley.api.models import ResourceClaimTemplate
from parley.api.names import DEVICE_CLASS, MIRROR_LABEL
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, TEMPLATES
from parley.control.objects.class_request import ClassRequest, class_request
from parley.control.objects.mirror import (
    allocated,
    allocation_body,
    can_never_reserve,
    claim_mirror,
    counted,
    declined_body,
    driver_of,
    fulfilled_body,
    is_mirror,
    is_offer,
    is_shareable,
    nodes_of,
    offer_body,
    offer_ended,
    offer_stands,
    owned_by,
    owner_pod,
    owner_pod_uid,
    recorded_units,
    template_mirror,
    whereabouts,
)
from parley.sdk import Allocation, Device, NodeLabels

CLAIM = a_claim(parameters={"count": 2})
NAMES = st.sampled_from(["a", "b", "node-1"])
ALLOCATIONS = st.builds(
    Allocation,
    devices=st.lists(st.builds(Device, NAMES, NAMES), unique=True, max_size=3).map(tuple),
    data=st.dictionaries(st.sampled_from(["count", "shared"]), st.integers(-(2**63), 2**64 - 1) | st.booleans()),
)


def showing(allocation: dict[str, Any], devices: Any = ()) -> BuiltinClaim:
    """The mirror with that allocation."""
    return mirror_of(CLAIM, status={"allocation": allocation, "devices": list(devices)})


def written(
    allocation: Allocation, nodes: Sequence[str] | NodeLabels | None = ("node-1",), *, node_part: bool = True
) -> BuiltinClaim:
    return showing(allocation_body(mirror_of(CLAIM), TOKENS, allocation, nodes, NOW, node_part=node_part))


@settings(max_examples=40, deadline=None)
@given(ALLOCATIONS)
def test_an_allocation_is_read_back_as_it_was_written(allocation: Allocation) -> None:
    mirror = written(allocation)
    assert mirror.status.allocation is not None
    assert driver_of(mirror.status.allocation) == TOKENS
    assert nodes_of(mirror.status.allocation) == ("node-1",)
    assert not is_offer(mirror.status.allocation)
    assert allocated(mirror, TOKENS) == counted(mirror, TOKENS) == allocation
    assert allocated(mirror, "other.example.com") is None


@pytest.mark.parametrize(
    ("nodes", "available_on"),
    [(None, None), (["node-1"], ()), (["node-1", "node-2"], ("node-1", "node-2"))],
    ids=["everywhere", "one-node", "two-nodes"],
)
def test_where_it_can_be_used_is_read_back(nodes: list[str] | None, available_on: tuple[str, ...] | None) -> None:
    found = allocated(written(Allocation(), nodes), TOKENS)
    assert found is not None
    assert found.available_on == available_on


@pytest.mark.parametrize("label", ["a", ""])
def test_nodes_by_labels_are_selected_as_schedulers_and_autoscalers_read_it(label: str) -> None:
    zone = NodeLabels({"topology.kubernetes.io/zone": label, "rack": "1"})
    mirror = written(Allocation(), zone)
    assert mirror.status.allocation is not None
    assert msgspec.to_builtins(mirror.status.allocation.node_selector) == {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "rack", "operator": "In", "values": ["1"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [label]},
                ]
            }
        ]
    }
    found = allocated(mirror, TOKENS)
    assert found is not None
    assert found.available_on == zone
    assert nodes_of(mirror.status.allocation) == ()
    assert (
        whereabouts(mirror.status.allocation)
        == f"allocated on nodes with rack=1,topology.kubernetes.io/zone={label}"
    )


def test_without_a_node_part_no_plugin_has_a_result_and_the_driver_is_known_still() -> None:
    mirror = written(Allocation(data={"count": 1}), None, node_part=False)
    assert mirror.status.allocation is not None
    assert mirror.status.allocation.devices.results == []
    assert driver_of(mirror.status.allocation) == TOKENS
    assert allocated(mirror, TOKENS) == Allocation(data={"count": 1}, available_on=None)


def test_an_offer_stands_until_a_driver_allocated_and_is_definite_only_then() -> None:
    body = offer_body(mirror_of(CLAIM), TOKENS, ["node-1", "node-2"], NOW)
    found = fulfilled_body(TOKENS, Allocation(data={"count": 1}), "node-1", NOW)
    open_, declined, done = (showing(body, d) for d in ((), declined_body(TOKENS, "none left", NOW), found))
    assert [offer_stands(claim) for claim in (open_, declined, done)] == [True, True, False]
    assert [bool(offer_ended(claim)) for claim in (open_, declined, done)] == [False, True, True]
    assert [allocated(claim, TOKENS) for claim in (open_, declined)] == [None, None]
    assert [counted(claim, TOKENS) for claim in (open_, declined)] == [None, None]
    assert allocated(done, TOKENS) == Allocation(data={"count": 1})


def test_devices_that_the_handle_alone_names_are_found() -> None:
    body = offer_body(mirror_of(CLAIM), TOKENS, ["node-1"], NOW)
    data = {"devices": [{"pool": "node-1", "device": "gpu-0"}, {"strange": True}, "nothing"]}
    found = allocated(showing(body, fulfilled_body(TOKENS, Allocation(data=data), "node-1", NOW)), TOKENS)
    assert found is not None
    assert found.devices == (Device("node-1", "gpu-0"),)


def test_devices_whose_handle_nobody_can_read_count_as_taken_whole() -> None:
    body = allocation_body(
        mirror_of(CLAIM), TOKENS, Allocation((Device("node-1", "gpu-0"),)), ["node-1"], NOW, node_part=True
    )
    body["devices"]["config"] = []
    assert allocated(showing(body), TOKENS) is None
    assert counted(showing(body), TOKENS) == Allocation((Device("node-1", "gpu-0"),), {})
    body["devices"]["results"] = []
    assert counted(showing(body), TOKENS) is None


@pytest.mark.parametrize("shareable", [False, True])
def test_a_named_mirror_tells_whose_it_is_what_it_asks_for_and_whether_pods_may_share_it(shareable: bool) -> None:
    mirror = mirror_of(CLAIM, shareable=shareable)
    assert is_mirror(mirror)
    assert is_shareable(mirror) is shareable
    assert class_request(mirror) == ClassRequest("licence", {"count": 2})
    assert owned_by(mirror, CLAIM.metadata.uid)
    assert not owned_by(mirror, "uid-other")
    assert (owner_pod(mirror), owner_pod_uid(mirror)) == (None, "")


def test_a_claim_that_belongs_to_a_pod_is_never_shareable() -> None:
    pod = a_pod()
    body = claim_mirror(CLAIM, shareable=True)
    owned = {"metadata": {**body["metadata"], **generated_metadata(pod, "licence")}}
    assert not is_shareable(read(BUILTIN_CLAIMS, {**body, **owned}))
    assert owner_pod(generated_for(pod)) == user("p")


def a_template(**spec: Any) -> ResourceClaimTemplate:
    meta = {"name": "t", "namespace": NAMESPACE, "uid": "uid-t"}
    inner = {"spec": {"resourceClassName": "licence", **spec}, "metadata": {"labels": {"app": "a"}}}
    return read(TEMPLATES, {"metadata": meta, "spec": inner})


def test_claims_made_from_a_mirrored_template_are_mirrors_for_one_pod_each() -> None:
    template = read(BUILTIN_TEMPLATES, template_mirror(a_template(parameters={"count": 2})))
    made = BuiltinClaim(spec=template.spec.spec)
    assert is_mirror(made)
    assert not is_shareable(made)
    assert class_request(made) == ClassRequest("licence", {"count": 2})
    assert template.spec.metadata.labels == {"app": "a", MIRROR_LABEL: "generated"}
    assert owned_by(template, "uid-t")


def test_units_are_recorded_beside_the_drivers_handle_if_they_are_given() -> None:
    for units in (None, 0, 3):
        allocation = Allocation((), {"count": 3}, None)
        body = allocation_body(mirror_of(CLAIM), TOKENS, allocation, ["node-1"], NOW, node_part=False, units=units)
        claim = showing(body)
        assert recorded_units(claim) == units
        found = allocated(claim, TOKENS)
        assert found is not None
        assert found.data == {"count": 3}
        assert claim.status.allocation is not None
        assert driver_of(claim.status.allocation) == TOKENS
        offered = showing(offer_body(mirror_of(CLAIM), TOKENS, ["node-1"], NOW, units=units))
        assert recorded_units(offered) == units


OURS: dict[str, Any] = {"name": "exclusive", "exactly": {"deviceClassName": DEVICE_CLASS}}
THEIRS: dict[str, Any] = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [((OURS,), True), ((THEIRS,), False), ((OURS, THEIRS), False), ((), False), (({"name": "any"},), False)],
    ids=["ours", "theirs", "both", "none", "first-available"],
)
def test_only_a_claim_whose_one_request_is_ours_is_a_mirror(requests: Any, expected: bool) -> None:
    claim = read(BUILTIN_CLAIMS, {"metadata": {}, "spec": {"devices": {"requests": requests}}})
    assert is_mirror(claim) is expected


RESERVED = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]}


@pytest.mark.parametrize(
    ("mirror", "pod", "expected"),
    [
        (mirror_of(CLAIM, deleted=True), a_pod(node="node-1"), True),
        (mirror_of(CLAIM), a_pod(node="node-1"), False),
        (mirror_of(CLAIM, status=RESERVED, deleted=True), a_pod(node="node-1"), False),
        (mirror_of(CLAIM, deleted=True), a_pod(), False),
        (mirror_of(CLAIM, deleted=True), a_pod(node="node-1", phase="Running"), False),
    ],
    ids=["too-late", "not-deleted", "let-in", "not-bound", "started"],
)
def test_a_bound_pod_is_shut_out_of_a_claim_that_was_deleted_before_it_was_let_in(
    mirror: BuiltinClaim, pod: Any, expected: bool
) -> None:
    assert can_never_reserve(mirror, pod) is expected
