"""What the real API server refuses in Parley's objects, in which words, and what it accepts."""

from typing import Any

import pytest
from tests.cluster.raw import Refused, raw

from parley.api.resources import CLAIM_RELEASES, CLAIMS, CLASSES, POD_SCHEDULINGS, TEMPLATES, Resource
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
WITHOUT_VALUES = {"matchExpressions": [{"key": "zone", "operator": "In"}]}
WITH_VALUES = {"matchExpressions": [{"key": "zone", "operator": "Exists", "values": ["a"]}]}
MANY_REQUIREMENTS = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}] * 2}] * 86
MANY_VALUES = [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"] * 1024}] * 5}]
VALUES = (
    "values are required for the operators In, NotIn, Gt and Lt, and must be left out for Exists and DoesNotExist."
)


def claim_spec(**fields: Any) -> dict[str, Any]:
    return {"spec": {"resourceClassName": "gpu", **fields}}


def shared(by: object) -> dict[str, Any]:
    """A template with that `sharedBy`."""
    return {"spec": {**claim_spec(allocationMode="WaitForFirstConsumer"), "sharedBy": by}}


RUN = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "uidLabel": "tekton.dev/pipelineRunUID"}


def answer(**fields: Any) -> dict[str, Any]:
    return {"status": {"claims": [{"name": "gpu", "driverName": "device.parley.dev", "round": 1, **fields}]}}


def release() -> dict[str, Any]:
    claim = {"namespace": "default", "name": "mine", "uid": "u1"}
    spec = {
        "claim": claim,
        "holdingUid": "u1",
        "nodeName": "n1",
        "driverName": "device.parley.dev",
        "allocation": {},
    }
    return {"spec": spec}


def post(cluster: Cluster, resource: Resource[Any], namespace: str, body: dict[str, Any]) -> Any:
    whole = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "one"},
        **body,
    }
    return raw(cluster).post(resource.path(namespace) + "?dryRun=All&fieldValidation=Strict", whole)


REFUSED: list[tuple[str, Resource[Any], dict[str, Any], str]] = [
    ("a class without a driver", CLASSES, {}, "driverName: Required value"),
    (
        "a driver's name that is no DNS name",
        CLASSES,
        {"driverName": "Device"},
        'driverName: Invalid value: "Device": driverName in body should match',
    ),
    (
        "a driver's name that is too long",
        CLASSES,
        {"driverName": "d" * 64},
        "driverName: Too long: may not be more than 63 bytes",
    ),
    (
        "an unknown placement",
        CLASSES,
        {"driverName": "d", "placement": "Lucky"},
        'placement: Unsupported value: "Lucky": supported values: "Optimistic", "Exact"',
    ),
    (
        "a flag that is a word",
        CLASSES,
        {"driverName": "d", "shareable": "yes"},
        'shareable: Invalid value: "string": shareable in body must be of type boolean: "string"',
    ),
    (
        "a typing error in a field's name",
        CLASSES,
        {"driverName": "d", "sharable": True},
        'unknown field "sharable"',
    ),
    (
        "a node selector without terms",
        CLASSES,
        {"driverName": "d", "suitableNodes": {"nodeSelectorTerms": []}},
        "suitableNodes.nodeSelectorTerms: Invalid value: 0: suitableNodes.nodeSelectorTerms in body should have "
        "at least 1 items",
    ),
    (
        "an unknown operator",
        CLASSES,
        {
            "driverName": "d",
            "suitableNodes": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Is"}]}]},
        },
        'suitableNodes.nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Is"',
    ),
    (
        "an operator that lacks its values",
        CLASSES,
        {"driverName": "d", "suitableNodes": {"nodeSelectorTerms": [WITHOUT_VALUES]}},
        f"suitableNodes.nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: {VALUES}",
    ),
    (
        "an operator that has no use for values",
        CLASSES,
        {"driverName": "d", "suitableNodes": {"nodeSelectorTerms": [WITH_VALUES]}},
        f"suitableNodes.nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: {VALUES}",
    ),
    ("a claim without a spec", CLAIMS, {}, "spec: Required value"),
    ("a claim without a class", CLAIMS, {"spec": {}}, "spec.resourceClassName: Required value"),
    (
        "a claim of a class without a name",
        CLAIMS,
        {"spec": {"resourceClassName": ""}},
        'spec.resourceClassName: Invalid value: "": spec.resourceClassName in body should be at least 1 chars',
    ),
    (
        "an unknown allocation mode",
        CLAIMS,
        claim_spec(allocationMode="Later"),
        'spec.allocationMode: Unsupported value: "Later": supported values: "WaitForFirstConsumer", "Immediate"',
    ),
    (
        "parameters that are no object",
        CLAIMS,
        claim_spec(parameters="a100"),
        'spec.parameters: Invalid value: "string": spec.parameters in body must be of type object: "string"',
    ),
    (
        "a field that belongs into the parameters",
        CLAIMS,
        claim_spec(model="a100"),
        'unknown field "spec.model"',
    ),
    ("a template without an inner spec", TEMPLATES, {"spec": {}}, "spec.spec: Required value"),
    ("a shared claim by no label", TEMPLATES, shared({}), "spec.sharedBy.podLabel: Required value"),
    (
        "a shared claim by what is no label",
        TEMPLATES,
        shared({"podLabel": "of/the/run"}),
        'spec.sharedBy.podLabel: Invalid value: "of/the/run": spec.sharedBy.podLabel in body should match',
    ),
    (
        "an owner whose UID is nowhere",
        TEMPLATES,
        shared({"podLabel": "run", "owner": {"apiVersion": "v1", "kind": "ConfigMap"}}),
        "spec.sharedBy.owner.uidLabel: Required value",
    ),
    (
        "an owner of a version that is none",
        TEMPLATES,
        shared({"podLabel": "run", "owner": {**RUN, "apiVersion": "a/b/c"}}),
        'spec.sharedBy.owner.apiVersion: Invalid value: "a/b/c": spec.sharedBy.owner.apiVersion in body',
    ),
    (
        "a template's label that is no text",
        TEMPLATES,
        {"spec": {"metadata": {"labels": {"team": 7}}, **claim_spec()}},
        'spec.metadata.labels.team: Invalid value: "integer"',
    ),
    (
        "too many candidate nodes",
        POD_SCHEDULINGS,
        {"spec": {"candidateNodes": [f"n{i}" for i in range(129)]}},
        "spec.candidateNodes: Too many: 129: must have at most 128 items",
    ),
    (
        "a round below zero",
        POD_SCHEDULINGS,
        {"spec": {"round": -1}},
        "spec.round: Invalid value: -1: spec.round in body should be greater than or equal to 0",
    ),
    (
        "two answers for one claim",
        POD_SCHEDULINGS,
        {"status": {"claims": answer()["status"]["claims"] * 2}},
        'status.claims[1]: Duplicate value: {"name":"gpu"}',
    ),
    (
        "an answer without its round",
        POD_SCHEDULINGS,
        {"status": {"claims": [{"name": "gpu", "driverName": "d"}]}},
        "status.claims[0].round: Required value",
    ),
    (
        "too many alternatives",
        POD_SCHEDULINGS,
        answer(alternatives={"nodes": [f"n{i}" for i in range(33)]}),
        "status.claims[0].alternatives.nodes: Too many: 33: must have at most 32 items",
    ),
    (
        "a selector with too many requirements",
        POD_SCHEDULINGS,
        answer(alternatives={"nodeSelector": {"nodeSelectorTerms": MANY_REQUIREMENTS}}),
        "status.claims[0].alternatives.nodeSelector.nodeSelectorTerms: Invalid value: at most 256 terms and "
        "requirements are allowed in all: select nodes by fewer labels.",
    ),
    (
        "a selector with too many values",
        POD_SCHEDULINGS,
        answer(alternatives={"nodeSelector": {"nodeSelectorTerms": MANY_VALUES}}),
        "status.claims[0].alternatives.nodeSelector.nodeSelectorTerms: Invalid value: at most 4096 values are "
        "allowed in all requirements: select nodes by a label that they have in common.",
    ),
    (
        "alternatives of both kinds",
        POD_SCHEDULINGS,
        answer(alternatives={"nodes": ["n1"], "nodeSelector": {"nodeSelectorTerms": [TERM]}}),
        "status.claims[0].alternatives.nodeSelector: Invalid value: nodes and nodeSelector exclude each other: "
        "leave one of them out.",
    ),
]

ACCEPTED: list[tuple[str, Resource[Any], dict[str, Any]]] = [
    ("the shortest class", CLASSES, {"driverName": "device.parley.dev"}),
    (
        "a class with everything",
        CLASSES,
        {
            "driverName": "device.parley.dev",
            "parameters": {"anything": [{"goes": None}]},
            "suitableNodes": {"nodeSelectorTerms": [TERM]},
            "shareable": True,
            "placement": "Exact",
        },
    ),
    ("the shortest claim", CLAIMS, claim_spec()),
    ("a claim with free parameters", CLAIMS, claim_spec(parameters={"deep": {"er": [1, 2.5, True, "x"]}})),
    (
        "a template with labels",
        TEMPLATES,
        {
            "spec": {
                "metadata": {"labels": {"team": "seven"}},
                **claim_spec(allocationMode="WaitForFirstConsumer"),
            }
        },
    ),
    ("a template for shared claims", TEMPLATES, shared({"podLabel": "run"})),
    (
        "a template for shared claims with an owner",
        TEMPLATES,
        shared({"podLabel": "tekton.dev/pipelineRunUID", "owner": {**RUN, "nameLabel": "tekton.dev/pipelineRun"}}),
    ),
    ("an empty negotiation", POD_SCHEDULINGS, {}),
    (
        "a negotiation in one write, its status included",
        POD_SCHEDULINGS,
        {
            "spec": {"candidateNodes": ["n1", "n2"], "round": 1, "selectedNode": "n1"},
            **answer(viableNodes=["n1"], alternatives={"nodes": []}, reason="n2: no device is free"),
        },
    ),
    (
        "as many terms, requirements and values as may be",
        POD_SCHEDULINGS,
        answer(
            alternatives={
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        *MANY_REQUIREMENTS[:83],
                        {"matchExpressions": MANY_VALUES[0]["matchFields"][:2]},
                        {"matchFields": MANY_VALUES[0]["matchFields"][:2]},
                        {},
                    ]
                }
            }
        ),
    ),
    (
        "alternatives by selector",
        POD_SCHEDULINGS,
        answer(alternatives={"nodeSelector": {"nodeSelectorTerms": [TERM]}}),
    ),
]


@pytest.mark.parametrize(("resource", "body", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused(
    installed: Cluster, namespace: str, resource: Resource[Any], body: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused) as refused:
        post(installed, resource, namespace, body)

    assert message in str(refused.value)


@pytest.mark.parametrize(("resource", "body"), [a[1:] for a in ACCEPTED], ids=[a[0] for a in ACCEPTED])
def test_accepted_and_kept(
    installed: Cluster, namespace: str, resource: Resource[Any], body: dict[str, Any]
) -> None:
    kept = post(installed, resource, namespace, body)

    for part, given in body.items():
        assert kept[part] == ({**kept[part], **given} if isinstance(given, dict) else given)


def test_what_the_user_left_out_is_shown(installed: Cluster, namespace: str) -> None:
    claim = post(installed, CLAIMS, namespace, claim_spec())
    class_ = post(installed, CLASSES, namespace, {"driverName": "d"})

    assert claim["spec"]["allocationMode"] == "WaitForFirstConsumer"
    assert (class_["placement"], class_["shareable"]) == ("Optimistic", False)


@pytest.mark.parametrize(
    ("resource", "body", "change", "message"),
    [
        (
            CLAIMS,
            claim_spec(parameters={"gpu": {"count": 1}}),
            {"spec": {"parameters": {"gpu": {"count": 2}}}},
            'ResourceClaim.parley.dev "one" is invalid: spec: Invalid value: spec is immutable: '
            "to request something else, delete the claim and create it again.",
        ),
        (
            CLAIMS,
            claim_spec(),
            {"spec": {"parameters": {}}},
            "spec: Invalid value: spec is immutable: to request something else, delete the claim and create it "
            "again.",
        ),
        (
            TEMPLATES,
            {"spec": claim_spec()},
            {"spec": {"spec": {"resourceClassName": "fpga"}}},
            'ResourceClaimTemplate.parley.dev "one" is invalid: spec: Invalid value: spec is immutable: '
            "delete the template and create it again; existing claims stay as they are.",
        ),
        (
            TEMPLATES,
            shared({"podLabel": "run"}),
            {"spec": {"sharedBy": {"podLabel": "build"}}},
            "spec: Invalid value: spec is immutable: delete the template and create it again; existing claims "
            "stay as they are.",
        ),
        (
            CLAIM_RELEASES,
            release(),
            {"spec": {"nodeName": "n2"}},
            '"one" is invalid: spec: Invalid value: spec is immutable: it records what happened.',
        ),
    ],
    ids=[
        "a claim's parameters",
        "parameters added to a claim",
        "a template's class",
        "what a template's claims are shared by",
        "a release's node",
    ],
)
def test_immutable(
    installed: Cluster,
    namespace: str,
    resource: Resource[Any],
    body: dict[str, Any],
    change: dict[str, Any],
    message: str,
) -> None:
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "one"}, **body}
    raw(installed).post(resource.path(namespace), whole)

    with pytest.raises(Refused) as refused:
        raw(installed).patch(resource.path(namespace, "one"), change)
    raw(installed).request("DELETE", resource.path(namespace, "one"))

    assert message in str(refused.value)


def test_labels_of_an_immutable_claim_can_change(installed: Cluster, namespace: str) -> None:
    whole = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "metadata": {"name": "one"}, **claim_spec()}
    raw(installed).post(CLAIMS.path(namespace), whole)

    changed = raw(installed).patch(CLAIMS.path(namespace, "one"), {"metadata": {"labels": {"team": "seven"}}})

    assert changed["metadata"]["labels"] == {"team": "seven"}
