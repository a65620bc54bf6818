"""How a recorded negotiation reads: who was proposed, who answered what, where the pod is, why not elsewhere."""

from textwrap import dedent
from typing import Any

import orjson

from parley.api.models import PodScheduling
from parley.api.resources import PODS
from parley.cli.timeline import story, summary
from parley.simulate.outcome import ClaimOutcome, SimulationOutcome
from parley.simulate.recording import ClaimRecord, PodRecord, RecordedStep


def record(name: str, node: str = "", **fields: Any) -> PodRecord:
    body = {"metadata": {"name": name, "namespace": "team"}, "spec": {"nodeName": node}}
    return PodRecord("team", name, pod=PODS.decode(orjson.dumps(body)), **fields)


def negotiation(candidates: list[str], **answers: dict[str, Any]) -> PodScheduling:
    claims = [{"name": name, "driverName": "device.parley.dev", "round": 1, **a} for name, a in answers.items()]
    return PodScheduling.model_validate({"spec": {"candidateNodes": candidates}, "status": {"claims": claims}})


def test_the_story_of_a_bound_pod() -> None:
    trainer = record(
        "trainer",
        "n1",
        round=negotiation(
            ["n1", "n2", "n3"],
            gpu={"viableNodes": ["n1", "n2"], "reason": "n3: has no devices"},
            disk={"viableNodes": ["n1", "n2", "n3"]},
        ),
        left_out={
            "n4": "has too little cpu left",
            "n5": "enough other nodes are viable",
            "n6": "has too little cpu left",
        },
        steps=[RecordedStep(0, "created"), RecordedStep(0.25, "bound to n1")],
    )

    assert story(trainer).plain == dedent("""\
        team/trainer is bound to n1
          candidates    n1, n2, n3
          claim gpu     device.parley.dev: viable on n1, n2
                        not on n3: has no devices
          claim disk    device.parley.dev: viable on n1, n2, n3
          selected      n1
                        viable too, but less preferred: n2
          not asked     n4, n6: has too little cpu left
                        n5: enough other nodes are viable
          +0.0 s        created
          +0.2 s        bound to n1
        """)


def test_about_a_claim_that_was_allocated_before_nobody_was_asked() -> None:
    joined = record("p", "n1", round=negotiation(["n1", "n2"], gpu={"viableNodes": ["n1", "n2"]}, disk={}))

    lines = [line.strip() for line in story(joined).plain.splitlines()]

    assert "claim disk    device.parley.dev: not asked, as the claim was allocated before" in lines
    assert "viable too, but less preferred: n2" in lines


def test_the_story_of_a_pod_that_waits() -> None:
    giant = record(
        "giant",
        round=negotiation(["n1"], gpus={"reason": "n1: 2 of 2 devices free, 3 wanted"}),
        steps=[RecordedStep(0, "created"), RecordedStep(0, "waits: NothingViable: no node is available")],
        waits="NothingViable: no node is available",
    )

    assert story(giant).plain == dedent("""\
        team/giant waits
          candidates    n1
          claim gpus    device.parley.dev: viable on no node
                        not on n1: 2 of 2 devices free, 3 wanted
          +0.0 s        created
          +0.0 s        waits: NothingViable: no node is available
        """)


def test_a_pod_without_claims_has_no_negotiation() -> None:
    assert story(record("web", "n1", steps=[RecordedStep(0, "created")])).plain == dedent("""\
        team/web is bound to n1
          +0.0 s        created
        """)


def test_of_many_refusing_nodes_some_are_shown() -> None:
    reasons = "; ".join(f"n{number}: has no devices" for number in range(20))

    lines = story(record("p", round=negotiation(["n0"], gpu={"reason": reasons}))).plain.splitlines()

    assert lines[3:] == [*(f"{'':16}not on n{n}: has no devices" for n in range(8)), f"{'':16}and 12 more nodes"]


def test_the_summary_has_a_line_for_each_pod() -> None:
    records = [
        record("trainer", "n1", claims={"gpu": ClaimRecord("gpu", "c", "d", ("gpu-0", "gpu-1"))}),
        record("render", "n2", claims={"licence": ClaimRecord("licence", "c", "d")}),
        record("giant", waits="NothingViable: no node is available"),
    ]

    assert summary(SimulationOutcome(records, [])).plain == dedent("""\
        3 pods: 2 bound, 1 waiting
          team/trainer  n1  gpu: gpu-0, gpu-1
          team/render   n2  licence
          team/giant    -   NothingViable""")


def test_the_summary_has_a_line_for_each_claim_that_no_pod_names() -> None:
    claims = [
        ClaimOutcome("team", "now", "gpu", "allocated on node n1", ("gpu-0",)),
        ClaimOutcome("team", "licence", "licences", "allocated on every node"),
        ClaimOutcome("team", "lost", "gpu", "allocated on node n2", ("gpu-1",), "ClaimStranded: its node is gone"),
        ClaimOutcome("team", "later", "gpu", reason="WaitForFirstConsumer: to be allocated for the first pod"),
    ]

    assert summary(SimulationOutcome([], claims)).plain == dedent("""\
        0 pods: 0 bound, 0 waiting

        4 claims that no pod names: 3 allocated, 1 waiting
          team/now      allocated on node n1: gpu-0
          team/licence  allocated on every node
          team/lost     allocated on node n2: gpu-1; ClaimStranded: its node is gone
          team/later    WaitForFirstConsumer: to be allocated for the first pod""")
    assert "1 claim that no pod names: 1 allocated" in summary(SimulationOutcome([], claims[:1])).plain
